// What is typed of the commands whose options are their values as they stand: export, init,
// random-model, doctor and store.
#pragma once

#include "engine/cli/typed.h"

namespace headrace::engine {

struct TypedExport {
    explicit TypedExport(CLI::App& parent);
    TypedExport(const TypedExport&) = delete;
    CommandLine read() const { return command; }

    ExportCommand command;
};

struct TypedInit {
    explicit TypedInit(CLI::App& parent);
    TypedInit(const TypedInit&) = delete;
    CommandLine read() const { return command; }

    InitCommand command;
};

struct TypedRandomModel {
    explicit TypedRandomModel(CLI::App& parent);
    TypedRandomModel(const TypedRandomModel&) = delete;
    CommandLine read() const { return command; }

    RandomModelCommand command;
};

struct TypedDoctor {
    explicit TypedDoctor(CLI::App& parent);
    TypedDoctor(const TypedDoctor&) = delete;
    CommandLine read() const;

    DoctorCommand command;
};

struct TypedStore {
    explicit TypedStore(CLI::App& parent);
    TypedStore(const TypedStore&) = delete;
    CommandLine read() const;

    CLI::App* store;
    StoreCommand command;
};

}  // namespace headrace::engine
