// What a child of a peer would inherit: a descriptor of the port or of a link would keep it open
// after the peer has been killed.

#include <fcntl.h>

#include "tests/processes/peer.hpp"

namespace waggle::testing {
namespace {

namespace fs = std::filesystem;

/// The descriptors of a process that its children inherit, and what they are.
std::map<int, std::string> inherited_from(pid_t process) {
  std::map<int, std::string> out;
  auto folder = fs::path{"/proc"} / std::to_string(process);
  for (const auto& entry : fs::directory_iterator{folder / "fd"}) {
    auto number = entry.path().filename();
    std::istringstream words{content_of(folder / "fdinfo" / number)};
    std::string word;
    while (words >> word && word != "flags:") // those of a timer follow later
      ;
    if (words >> word && (std::stoul(word, nullptr, 8) & O_CLOEXEC) == 0) {
      std::error_code gone;
      out[std::stoi(number.string())] = fs::read_symlink(entry.path(), gone);
    }
  }
  return out;
}

TEST(Descriptors, AChildOfAPeerInheritsNone) {
  scratch_folder folder;
  std::vector<std::string> arguments{"average", "--elements", "65536"};
  peer first{folder, "first", arguments};
  auto address = first.await_address();
  arguments.insert(arguments.end(), {"--initial-peers", to_string(address)});
  peer second{folder, "second", arguments};
  arguments.emplace_back("--client-mode");
  peer third{folder, "third", arguments};
  // Links that were dialled and accepted, with shared memory, and HTTP.
  ASSERT_TRUE(eventually([&] {
    return metric(address, "waggle_network_connections") >= 2
           && metric(address, "waggle_network_bytes_total", "plane=\"shared\"") > 0;
  }))
    << first.log();
  auto from_us = inherited_from(::getpid()); // by the peers
  for (const auto* each : {&first, &second, &third}) {
    auto found = inherited_from(each->pid());
    std::erase_if(found,
                  [&](const auto& one) { return one.first < 3 || from_us.contains(one.first); });
    EXPECT_EQ(found, (std::map<int, std::string>{})) << each->log();
  }
}

} // namespace
} // namespace waggle::testing
