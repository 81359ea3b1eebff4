// The resident memory that a round needs; and failed rounds do not leak memory.

#include <cstdio>
#include <cstdlib>

#include "tests/processes/peer.hpp"

namespace waggle::testing {
namespace {

/// Returns a line of /proc/PID/status in MiB, 0 if it does not exist.
double status_mib(pid_t process, const std::string& name) {
  std::istringstream lines{content_of("/proc/" + std::to_string(process) + "/status")};
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(name + ":"))
      return std::strtod(line.c_str() + name.size() + 1, nullptr) / 1024;
  return 0;
}

/// The resident size of other peers' shared memory that the process has mapped, in MiB. Such pages
/// also count in the resident size of the peers that own them.
double peers_memory_mib(pid_t process) {
  std::istringstream lines{content_of("/proc/" + std::to_string(process) + "/smaps")};
  double found = 0;
  bool of_a_peer = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("/memfd:waggle") != std::string::npos)
      of_a_peer = line.find(" r--s ") != std::string::npos; // its own memory is mapped writable
    else if (line.find('-') < line.find(' '))
      of_a_peer = false; // another mapping
    else if (of_a_peer && line.starts_with("Rss:"))
      found += std::strtod(line.c_str() + 4, nullptr) / 1024;
  }
  return found;
}

/// Resets VmHWM, the peak of the resident size, which includes mapped shared memory.
void forget_peak(pid_t process) {
  std::ofstream{"/proc/" + std::to_string(process) + "/clear_refs"} << "5";
}

std::vector<std::string> average_with(std::vector<std::string> arguments,
                                      const peer* first = nullptr) {
  arguments.insert(arguments.begin(), "average");
  if (first != nullptr)
    arguments.insert(arguments.end(), {"--initial-peers", to_string(*first->address())});
  return arguments;
}

class RoundMemory : public ::testing::TestWithParam<const char*> {};

TEST_P(RoundMemory, ARoundTakesAtMostTwoAndAHalfTimesItsVector) {
  constexpr double vector_mib = 64;
  scratch_folder folder;
  auto common = words("--elements 16777216 --expected-peers 4 --min-group-size 4 --shared-memory",
                      {GetParam()});
  peer watched{folder, "watched", average_with(common)};
  watched.await_address();
  double before = 0;
  int unchanged = 0;
  ASSERT_TRUE(eventually([&] {
    auto now = status_mib(watched.pid(), "VmRSS");
    unchanged = now == before && now > vector_mib ? unchanged + 1 : 0;
    before = now;
    return unchanged == 30;
  }))
    << "the resident size did not settle above the size of its vector: " << watched.log();
  std::vector<std::unique_ptr<peer>> others;
  for (const auto* name : {"a", "b", "c"})
    others.push_back(std::make_unique<peer>(folder, name, average_with(common, &watched)));
  auto rounds_complete = [&](std::size_t wanted) {
    return eventually(
      [&] {
        auto all = watched.rounds();
        return static_cast<std::size_t>(std::count_if(
                 all.begin(), all.end(), [](const auto& r) { return r["outcome"] == "complete"; }))
               >= wanted;
      },
      120s);
  };
  // Vectors are used alternately for input and result; after four rounds each was used for both.
  ASSERT_TRUE(rounds_complete(4)) << watched.log();
  auto of_peers = peers_memory_mib(watched.pid());
  forget_peak(watched.pid());
  ASSERT_TRUE(rounds_complete(watched.rounds().size() + 3)) << watched.log();
  // The mapped memory of other peers belongs to them, and stays mapped.
  auto growth = status_mib(watched.pid(), "VmHWM") - before - of_peers;
  std::printf("shared memory %s: a round needs %.0f MiB, %.2f x the vector, and maps %.0f MiB of "
              "other peers, %.2f x\n",
              GetParam(), growth, growth / vector_mib, of_peers, of_peers / vector_mib);
  EXPECT_GT(growth, vector_mib / 2) << "nothing was measured";
  EXPECT_LE(growth, 2.5 * vector_mib);
  // Contributions for a quarter of the vector and results for three quarters, in two vectors that
  // are used alternately.
  bool shared = std::string{GetParam()} == "true";
  EXPECT_GE(of_peers, shared ? vector_mib : 0.0) << "nothing was shared";
  EXPECT_LE(of_peers, shared ? 2 * 1.6 * vector_mib : 0.0);
}

INSTANTIATE_TEST_SUITE_P(WithAndWithoutSharedMemory, RoundMemory,
                         ::testing::Values("true", "false"),
                         [](const auto& info) { return std::string{"shared_"} + info.param; });

// The codec needs longer for the vector than the all-reduce may take (more than twice as long on a
// core of 2026), so rounds fail while parts are being sent. WAGGLE_FAILED_ROUNDS is the number of
// rounds.
TEST(FailedRounds, LeaveTheResidentSizeFlat) {
  scratch_folder folder;
  constexpr double vector_mib = 96;
  const auto rounds = from_environment("WAGGLE_FAILED_ROUNDS", 12);
  auto arguments =
    words("--elements 25165824 --codec quantile8 --averaging-timeout 2s --stall-timeout 50ms "
          "--allreduce-timeout 101ms --matchmaking-time 100ms --expected-peers 2 "
          "--min-contributors 2");
  peer a{folder, "a", average_with(arguments)};
  a.await_address();
  peer b{folder, "b", average_with(arguments, &a)};
  auto failed_in_a_round = [&] {
    auto all = a.rounds();
    return static_cast<std::size_t>(std::count_if(all.begin(), all.end(), [](const auto& r) {
      return r["outcome"] == "failed" && !r["round"].is_null();
    }));
  };
  std::vector<double> resident;
  for (std::size_t quarter = 1; quarter <= 4; ++quarter) {
    ASSERT_TRUE(eventually([&] { return failed_in_a_round() >= quarter * rounds / 4; }, 600s))
      << a.log();
    forget_peak(a.pid());
    auto until = failed_in_a_round() + 3; // measure the peak of a few rounds
    ASSERT_TRUE(eventually([&] { return failed_in_a_round() >= until; }, 60s)) << a.log();
    resident.push_back(status_mib(a.pid(), "VmHWM"));
  }
  std::printf("peaks after each quarter of %zu failed rounds: %.1f, %.1f, %.1f, %.1f MiB\n", rounds,
              resident[0], resident[1], resident[2], resident[3]);
  EXPECT_GT(resident[0], 2 * vector_mib)
    << "expected a vector and a result; else no round was running";
  // If the other peer reads a result slowly, this one may need one more vector, and keeps it for
  // later rounds.
  EXPECT_LE(resident[3] - resident[0], 1.25 * vector_mib);
}

} // namespace
} // namespace waggle::testing
