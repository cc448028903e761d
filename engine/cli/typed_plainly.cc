#include "engine/cli/typed_plainly.h"

#include <CLI/CLI.hpp>

#include "offload/check.h"

namespace headrace::engine {

TypedExport::TypedExport(CLI::App& parent) {
    CLI::App* to_export =
        parent.add_subcommand("export", "Write a run's model as a Hugging Face folder");
    to_export->add_option("RUN", command.run_folder, "output_dir of the run")->required();
    to_export->add_option("OUT", command.target_folder, "The folder to make")->required();
}

TypedInit::TypedInit(CLI::App& parent) {
    CLI::App* init = parent.add_subcommand("init", "Print a run file for MODEL and DATA");
    init->add_option("MODEL", command.model, "A folder, or org/name in the hub cache")->required();
    init->add_option("DATA", command.data, "JSONL to train on")->required();
}

TypedRandomModel::TypedRandomModel(CLI::App& parent) {
    CLI::App* random = parent.add_subcommand(
        "random-model", "Write a model of random weights, of any size, to measure with");
    random->add_option("SHAPE", command.shape, "A config.json, such as one of configs/models")
        ->required();
    random->add_option("OUT", command.target_folder, "The folder to make")->required();
    random->add_option("--layers", command.block_count, "Blocks [as in the config]")
        ->check(CLI::Range(1, 10000));
    random->add_option("--seed", command.seed, "Of the weights")->capture_default_str();
    random->add_flag(
        "--recipe", command.is_recipe,
        "Write no weights: they are made where the model is read, for a drive that has "
        "no room for them");
}

TypedDoctor::TypedDoctor(CLI::App& parent) {
    CLI::App* doctor =
        parent.add_subcommand("doctor", "Say what this machine offers, and what is in the way");
    doctor
        ->add_option("--nvme", command.nvme_paths, "A folder on a drive to look at; once per drive")
        ->allow_extra_args(false);
    doctor->add_flag("--probe", command.is_probe,
                     "Measure this machine and keep its rates for train and plan");
    doctor->add_option("--model", command.model,
                       "Whose products are measured: a config.json, a folder or a name");
    doctor->add_option("--tokens", command.token_count, "Of a micro-batch, for the products")
        ->check(CLI::Range(2, 1 << 20))
        ->capture_default_str();
    doctor->add_option("--update-threads", command.update_thread_count, "As a run has them")
        ->check(CLI::Range(1, 4096))
        ->capture_default_str();
    doctor->add_option("--out", command.out, "A machine file to write instead");
    within(doctor->add_option("--seconds", command.seconds, "How long it may take, about"), 0.1,
           3600)
        ->capture_default_str();
}

CommandLine TypedDoctor::read() const {
    const bool asks_more = !command.out.empty() || !command.model.empty();
    if (asks_more && !command.is_probe) {
        return refused("--out and --model say what to do with what is measured: add --probe");
    }
    return command;
}

TypedStore::TypedStore(CLI::App& parent)
    : store(parent.add_subcommand("store", "List, verify, remove or move runs on drives")) {
    store->require_subcommand(1);
    CLI::App* list = store->add_subcommand("list", "The stores in these folders");
    list->add_option("PATH", command.nvme_paths, "Folders that were given as nvme_paths")
        ->required();
    const auto add = [&](const char* name, const char* help) {
        CLI::App* one = store->add_subcommand(name, help);
        one->add_option("RUN", command.run, "output_dir of the run, or the name that list shows")
            ->required();
        one->add_option("--nvme", command.nvme_paths,
                        "Where the store is; once per drive. Default: as in RUN's own settings")
            ->allow_extra_args(false);
        return one;
    };
    add("verify", "Read every place of the newest commit and compare its checksum");
    add("remove", "Delete the store; nobody may be using it");
    CLI::App* move = add("move", "Bring the newest commit to other drives, more or fewer");
    move->add_option("--to", command.target_paths, "Where it shall be; once per drive")
        ->required()
        ->allow_extra_args(false);
}

CommandLine TypedStore::read() const {
    using Action = StoreCommand::Action;
    StoreCommand typed = command;
    const std::string name = name_of_command(*store);
    typed.action = name == "list"     ? Action::list
                   : name == "verify" ? Action::verify
                   : name == "remove" ? Action::remove
                                      : Action::move;
    CHECK(typed.action != Action::move || name == "move");
    return typed;
}

}  // namespace headrace::engine
