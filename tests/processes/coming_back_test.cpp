// Real peers that are killed and restarted find each other. tests/swarm/coming_back_test.cpp has
// what they report if they find none.

#include <gmock/gmock.h>

#include "tests/processes/peer.hpp"

namespace waggle::testing {
namespace {

using ::testing::HasSubstr;

class ComingBackProcesses : public ::testing::Test {
protected:
  std::unique_ptr<peer> start(const std::string& name, std::vector<std::string> more) const {
    more.insert(more.begin(), "node");
    return std::make_unique<peer>(folder, name, std::move(more));
  }
  static void kill(peer& victim) {
    victim.signal(SIGKILL);
    EXPECT_EQ(victim.await_signal(), SIGKILL);
  }
  /// How many peers it would know after a restart.
  [[nodiscard]] std::size_t known(const std::string& name) const {
    auto text = content_of(folder.path() / name / "known_peers");
    auto lines = std::count(text.begin(), text.end(), '\n');
    return lines > 2 ? static_cast<std::size_t>(lines) - 2 : 0;
  }
  static std::string readiness(const endpoint& where) {
    auto answer = net::http_get(where, "/readyz", 5s);
    return answer ? std::to_string(answer->status) + " " + answer->body : std::string{};
  }

  scratch_folder folder;
};

TEST_F(ComingBackProcesses, TwoThatKnewEachOtherMeetWithoutTheirInitialPeer) {
  auto first = start("first", {});
  auto gone = to_string(first->await_address());
  auto second = start("second", {"--initial-peers", gone});
  auto third = start("third", {"--initial-peers", gone});
  auto second_at = to_string(second->await_address());
  auto third_at = to_string(third->await_address());
  ASSERT_TRUE(eventually([&] { return known("second") == 2 && known("third") == 2; }))
    << second->log() << third->log();
  for (auto* each : {first.get(), second.get(), third.get()})
    kill(*each);

  second = start("second", {"--initial-peers", gone, "--listen", second_at});
  third = start("third", {"--initial-peers", gone, "--listen", third_at});
  for (auto* each : {second.get(), third.get()}) {
    auto where = each->await_address();
    EXPECT_TRUE(eventually([&] { return readiness(where).starts_with("200"); })) << each->log();
    EXPECT_THAT(each->log(), HasSubstr("could not join through " + gone));
    EXPECT_THAT(each->log(), HasSubstr("connected to peer"));
  }
}

} // namespace
} // namespace waggle::testing
