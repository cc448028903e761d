// Goal: where io_uring is forbidden the store takes threads, says so once with what lifts the ban,
// and works. Method: real seccomp filters in a child process, one per system call, refusing or
// killing; the bans of administrators and kernels from facts made up.
#include "nvme/uring_probe.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstddef>

#include "nvme/nvme_store.h"
#include "tests/nvme/fixture.h"

namespace headrace::nvme {
namespace {

using offload::kib;

// From now on in this process, `call` ends in `action`.
bool forbid(long call, uint32_t action) {
    std::array<sock_filter, 4> filter = {
        sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 1),
        sock_filter BPF_STMT(BPF_RET | BPF_K, action),
        sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const sock_fprog program{.len = filter.size(), .filter = filter.data()};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// 0: threads were chosen with one note that names seccomp, a forced ring was refused, and a round
// trip was equal. Other numbers say what was not so.
int use_store_in(const std::string& path, long call, uint32_t action) {
    if (!forbid(call, action)) return 1;
    StoreOptions options{.paths = {path}, .run_name = "probe"};
    options.places = {
        {.name = "place", .size_bytes = 256 * kib, .copies = offload::Copies::scratch}};
    options.engine = IoEngine::uring;
    if (open_store(options).ok()) return 2;
    options.engine = IoEngine::automatic;
    auto store = open_store(options);
    if (!store) return 3;
    if ((*store)->engine_name() != "threads") return 4;
    if ((*store)->notes().size() != 1) return 5;
    for (const char* part : {"a seccomp filter", "--security-opt seccomp=", "io_uring_enter"}) {
        if ((*store)->notes()[0].find(part) == std::string::npos) return 6;
    }
    PageBuffer source(256 * kib);
    PageBuffer target(256 * kib);
    source.fill_random(1);
    if (!write_place(**store, 0, source.span()).ok()) return 7;
    if (!read_place(**store, 0, target.span()).ok()) return 8;
    return source == target ? 0 : 9;
}

TEST(UringProbe, SeccompRefusalChoosesThreads) {
    TempFolder folder;
    for (const long call : {SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register}) {
        for (const uint32_t action :
             {uint32_t{SECCOMP_RET_ERRNO | EPERM}, uint32_t{SECCOMP_RET_ERRNO | ENOSYS}}) {
            EXPECT_EQ(run_in_child([&] { return use_store_in(folder.path(), call, action); }), 0)
                << "system call " << call;
        }
    }
}

TEST(UringProbe, SeccompKillChoosesThreadsAndTheProcessLives) {
    TempFolder folder;
    EXPECT_EQ(run_in_child([&] {
                  return use_store_in(folder.path(), SYS_io_uring_setup, SECCOMP_RET_KILL_PROCESS);
              }),
              0);
}

bool has(const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
}

TEST(UringProbe, EachBanIsToldWithWhatLiftsIt) {
    using Call = UringFacts::Call;
    UringFacts facts{.failed_call = Call::io_uring_setup, .error_number = EPERM};
    facts.disabled_setting = 1;
    facts.user_group = 1000;
    EXPECT_TRUE(has(ban_of(facts), "kernel.io_uring_disabled is 1")) << ban_of(facts);
    EXPECT_TRUE(has(remedy_of(facts), "sysctl -w kernel.io_uring_disabled=0;"));
    EXPECT_TRUE(has(remedy_of(facts), "sysctl -w kernel.io_uring_group=1000 (now -1)"));
    facts.disabled_setting = 2;
    EXPECT_TRUE(has(remedy_of(facts), "2 forbids it to root"));
    EXPECT_FALSE(has(remedy_of(facts), "io_uring_group"));

    // The setting is not to blame for what another call says, nor for a kill.
    facts.is_filtered = true;
    EXPECT_TRUE(has(ban_of(facts), "io_uring_disabled"));
    facts.failed_call = Call::io_uring_enter;
    EXPECT_TRUE(has(ban_of(facts), "io_uring_enter gave EPERM"));
    EXPECT_TRUE(has(ban_of(facts), "seccomp"));
    EXPECT_TRUE(has(remedy_of(facts), "--security-opt seccomp=unconfined"));
    EXPECT_TRUE(has(remedy_of(facts), "seccompProfile"));
    facts = {.failed_call = Call::io_uring_setup, .error_number = EPERM};
    facts.was_killed = facts.is_filtered = true;
    EXPECT_TRUE(has(ban_of(facts), "killed the process"));

    facts = {.failed_call = Call::io_uring_setup, .error_number = ENOSYS};
    EXPECT_TRUE(has(ban_of(facts), "the kernel has no io_uring"));
    EXPECT_TRUE(has(remedy_of(facts), "Linux 5.6"));
    facts.error_number = ENOMEM;
    EXPECT_TRUE(has(remedy_of(facts), "ulimit -l unlimited"));
    facts.error_number = EMFILE;
    EXPECT_TRUE(has(remedy_of(facts), "ulimit -n"));
    facts.error_number = EPERM;
    EXPECT_TRUE(has(remedy_of(facts), "security module"));
}

// What is found under each filter: the call that was forbidden, and how.
TEST(UringProbe, LookingFindsTheForbiddenCall) {
    using Call = UringFacts::Call;
    if (look_at_io_uring().failed_call != Call::none) GTEST_SKIP() << "forbidden here already";
    const std::pair<long, Call> calls[] = {{SYS_io_uring_setup, Call::io_uring_setup},
                                           {SYS_io_uring_register, Call::io_uring_register},
                                           {SYS_io_uring_enter, Call::io_uring_enter}};
    for (const auto& [number, call] : calls) {
        EXPECT_EQ(run_in_child([number = number, call = call] {
                      if (!forbid(number, SECCOMP_RET_ERRNO | EPERM)) return 1;
                      const UringFacts facts = look_at_io_uring();
                      if (facts.failed_call != call) return 2;
                      if (facts.error_number != EPERM || facts.was_killed) return 3;
                      return facts.is_filtered ? 0 : 4;
                  }),
                  0)
            << "system call " << number;
    }
    EXPECT_EQ(run_in_child([] {
                  if (!forbid(SYS_io_uring_setup, SECCOMP_RET_KILL_PROCESS)) return 1;
                  const UringFacts facts = look_at_io_uring();
                  return facts.was_killed && facts.is_filtered ? 0 : 2;
              }),
              0);
}

TEST(UringProbe, EnginesAreNamed) {
    EXPECT_EQ(*parse_io_engine("auto"), IoEngine::automatic);
    EXPECT_EQ(*parse_io_engine("uring"), IoEngine::uring);
    EXPECT_EQ(*parse_io_engine("threads"), IoEngine::threads);
    const auto refused = parse_io_engine("libaio");
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().text().find("libaio"), std::string::npos);
}

}  // namespace
}  // namespace headrace::nvme
