// Runs the join line that a peer prints, unchanged; and peers with other options are refused.

#include <unistd.h>

#include "runtime/core/bytes.hpp"
#include "runtime/core/ids.hpp"
#include "tests/processes/peer.hpp"

namespace waggle::testing {
namespace {

namespace fs = std::filesystem;

/// Options of a small model, with epochs of some milliseconds.
const auto small = words("--run-id agreed --model mlp --width 16 --layers 1 --lr 1e-3 "
                         "--target-batch-size 32 --stall-timeout 4s --step-interval 10ms "
                         "--micro-batch 4 --bandwidth 10MiB --auxiliary false");

/// The join line, which is the last line of the start-up output.
std::string join_line_of(const peer& who) {
  auto text = who.log();
  auto at = text.find("join with:\n");
  auto begin = at == std::string::npos ? at : at + 11;
  auto end = text.find('\n', begin);
  return begin == std::string::npos || end == std::string::npos ? ""
                                                                : text.substr(begin, end - begin);
}

/// Runs `line` in a shell, in an empty folder, with this build's program first on the PATH.
program in_a_shell(const scratch_folder& folder, const std::string& name, const std::string& line) {
  auto bin = folder.path() / (name + "-bin");
  auto home = folder.path() / name;
  fs::create_directories(bin);
  fs::create_directories(home);
  fs::create_symlink(WAGGLE_PROGRAM, bin / "waggle");
  return {folder,
          name,
          {"/bin/sh", "-c",
           "cd '" + home.string() + "' && PATH='" + bin.string() + "':$PATH && exec " + line}};
}

/// Of a peer that listens on all addresses.
std::optional<endpoint> address_of(const program& who) {
  auto text = who.log();
  auto at = text.find("listening on [::]:");
  auto end = text.find('\n', at);
  if (at == std::string::npos || end == std::string::npos)
    return std::nullopt;
  auto parsed = parse_endpoint("127.0.0.1:" + text.substr(at + 18, end - at - 18));
  return parsed ? std::optional{*parsed} : std::nullopt;
}

class AgreementOfProcesses : public ::testing::Test {
protected:
  scratch_folder folder;
};

TEST_F(AgreementOfProcesses, TheJoinLineAsItStandsMakesAPeerThatTrainsInStep) {
  peer first{folder, "first", words("train --epochs 150 --linger 5m", small)};
  auto where = first.await_address();
  ASSERT_TRUE(eventually([&] { return !join_line_of(first).empty(); })) << first.log();
  auto line = join_line_of(first);
  for (const char* own :
       {"micro-batch", "bandwidth", "auxiliary", "step-interval", "stall-timeout", "linger"})
    EXPECT_EQ(line.find(own), std::string::npos) << line;
  auto second = in_a_shell(folder, "second", line);
  ASSERT_TRUE(eventually([&] { return address_of(second).has_value(); })) << second.log();
  // Both reach the last epoch with the same parameters, and the second peer took part in rounds.
  nlohmann::json ours;
  nlohmann::json theirs;
  auto ended = [&] {
    ours = status_of(where);
    theirs = status_of(*address_of(second));
    return number(ours, "epoch") == 150 && number(theirs, "epoch") == 150;
  };
  ASSERT_TRUE(eventually(ended, 120s)) << second.log() << first.log();
  EXPECT_EQ(ours["parameters"], theirs["parameters"]);
  EXPECT_GE(theirs["rounds"]["complete"].get<int>(), 2) << second.log();
}

TEST_F(AgreementOfProcesses, AnotherRateIsRefusedWithBothValuesAtBothEnds) {
  peer first{folder, "first", words("train", small)};
  auto where = to_string(first.await_address());
  auto other = words("train --initial-peers " + where, small);
  *(std::find(other.begin(), other.end(), "1e-3")) = "0.01";
  peer second{folder, "second", other};
  EXPECT_EQ(second.await_exit(20s), 2) << second.log();
  EXPECT_NE(
    second.log().find("waggle: refused by all --initial-peers: lr is 0.01 here and 0.001 "
                      "there; start it with the run's options (the join line prints them)\n"),
    std::string::npos)
    << second.log();
  EXPECT_TRUE(eventually(
    [&] { return first.log().find("lr is 0.001 here and 0.01 there") != std::string::npos; }))
    << first.log();
  EXPECT_TRUE(first.runs());
}

TEST_F(AgreementOfProcesses, ANodeWithTheOptionsPrintsTheLineAndRefusesOthers) {
  peer node{folder, "node", {"node", "--run-id", "agreed", "--lr", "1e-3", "--elements"}};
  EXPECT_EQ(node.await_exit(20s), 2) << "a node accepts only options on which the run agrees";
  peer bootstrap{folder, "bootstrap",
                 words("node --run-id agreed --model mlp --width 16 --layers 1 --lr 1e-3 "
                       "--target-batch-size 32")};
  auto where = to_string(bootstrap.await_address());
  ASSERT_TRUE(eventually([&] { return !join_line_of(bootstrap).empty(); })) << bootstrap.log();
  EXPECT_NE(join_line_of(bootstrap).find(" --target-batch-size 32 --layers 1 --width 16 --lr 1e-3 "
                                         "--model mlp"),
            std::string::npos)
    << join_line_of(bootstrap);
  auto joined = in_a_shell(folder, "joined", join_line_of(bootstrap));
  ASSERT_TRUE(eventually([&] { return address_of(joined).has_value(); })) << joined.log();
  EXPECT_TRUE(eventually([&] { return epoch_of(*address_of(joined)) >= 2; })) << joined.log();
  auto other = words("train --initial-peers " + where, small);
  *(std::find(other.begin(), other.end(), "1e-3")) = "0.01";
  peer refused{folder, "refused", other};
  EXPECT_EQ(refused.await_exit(20s), 2) << refused.log();
}

TEST_F(AgreementOfProcesses, ANodeWithoutOptionsLearnsTheLineFromTheFirstTrainer) {
  peer node{folder, "node", {"node", "--run-id", "agreed"}};
  auto where = to_string(node.await_address());
  peer first{folder, "first", words("train --initial-peers " + where, small)};
  auto line = "waggle train --run-id agreed --initial-peers " + where
              + " --listen '[::]:0' --announce 127.0.0.1:0 --target-batch-size 32 --layers 1 "
                "--width 16 --lr 1e-3 --model mlp\n";
  EXPECT_TRUE(eventually([&] { return node.log().find(line) != std::string::npos; }))
    << node.log() << first.log();
}

/// What a command prints; its exit code has to be `code`.
std::string output_of(const scratch_folder& folder, const std::string& name,
                      const std::vector<std::string>& arguments, int code = 0) {
  auto command = arguments;
  command.insert(command.begin(), WAGGLE_PROGRAM);
  program run{folder, name, command};
  EXPECT_EQ(run.await_exit(20s), code) << run.log();
  return run.log();
}

TEST_F(AgreementOfProcesses, WhoHasTheKeyJoinsAndNobodyElse) {
  auto key = (folder.path() / "birds.key").string();
  auto other = (folder.path() / "other.key").string();
  for (const auto& each : {key, other})
    output_of(folder, "id", {"id", "--swarm-key", each, "--data-dir", folder.path() / "id"});
  peer first{folder, "first", words("train --linger 5m --swarm-key " + key, small)};
  auto where = to_string(first.await_address());
  ASSERT_TRUE(eventually([&] { return !join_line_of(first).empty(); })) << first.log();
  EXPECT_NE(join_line_of(first).find(" --swarm-key " + key + " "), std::string::npos);

  peer nameless{folder, "nameless", words("train --initial-peers " + where, small)};
  EXPECT_EQ(nameless.await_exit(20s), 2) << nameless.log();
  EXPECT_NE(nameless.log().find("this peer has only a run's name, the other end has a swarm key"),
            std::string::npos)
    << nameless.log();
  peer wrong{folder, "wrong",
             words("train --swarm-key " + other + " --initial-peers " + where, small)};
  EXPECT_EQ(wrong.await_exit(20s), 2) << wrong.log();
  EXPECT_NE(wrong.log().find("the two ends have different swarm keys"), std::string::npos)
    << wrong.log();
  EXPECT_TRUE(eventually([&] {
    return first.log().find("this peer has a swarm key, the other end has only a run's name")
           != std::string::npos;
  }))
    << first.log();

  // The file of `waggle invite` alone is enough, and shows the key to nobody.
  auto file = output_of(folder, "birds.toml", {"invite", "--data-dir", folder.path() / "first"});
  std::ofstream{folder.path() / "birds.toml"} << file;
  auto second = in_a_shell(
    folder, "second", "waggle train --config '" + (folder.path() / "birds.toml").string() + "'");
  ASSERT_TRUE(eventually([&] { return address_of(second).has_value(); })) << second.log();
  EXPECT_TRUE(eventually([&] { return epoch_of(*address_of(second)) >= 2; })) << second.log();
  auto digits = to_hex(as_byte_span(content_of(key)));
  EXPECT_NE(file.find(digits), std::string::npos);
  for (const auto& log : {first.log(), second.log()})
    EXPECT_EQ(log.find(digits), std::string::npos);
}

TEST_F(AgreementOfProcesses, ABadKeyFileIsRefusedBeforeAnythingStarts) {
  auto key = folder.path() / "birds.key";
  std::ofstream{key} << "correct horse battery staple";
  fs::permissions(key, fs::perms::owner_read);
  EXPECT_NE(
    output_of(folder, "short", {"train", "--swarm-key", key}, 2).find("a passphrase is not a key"),
    std::string::npos);
  EXPECT_NE(output_of(folder, "none", {"node", "--swarm-key", folder.path() / "none"}, 2)
              .find("there is no file"),
            std::string::npos);
  EXPECT_NE(output_of(folder, "folder", {"node", "--swarm-key", folder.path()}, 2)
              .find("is not a regular file"),
            std::string::npos);
}

TEST_F(AgreementOfProcesses, ASecondProcessWithAnIdentityIsRefusedAndTheFirstGoesOn) {
  peer node{folder, "node", {"node", "--run-id", "agreed"}};
  auto where = to_string(node.await_address());
  auto key = (folder.path() / "key.pem").string();
  std::vector<std::string> command{"node", "--run-id",        "agreed", "--identity",
                                   key,    "--initial-peers", where};
  peer first{folder, "first", command};
  ASSERT_TRUE(
    eventually([&] { return metric(first.await_address(), "waggle_network_connections") >= 1; }))
    << first.log();
  peer second{folder, "second", command};
  EXPECT_TRUE(eventually([&] {
    return second.log().find("another process uses this identity: give each its own data folder")
           != std::string::npos;
  }))
    << second.log() << node.log();
  EXPECT_TRUE(
    eventually([&] { return metric(first.await_address(), "waggle_network_connections") >= 1; }))
    << first.log();
  EXPECT_EQ(node.log().find("lost peer"), std::string::npos) << node.log();
  // A process with this identity that joins through the first one exits.
  peer third{folder,
             "third",
             {"node", "--run-id", "agreed", "--identity", key, "--initial-peers",
              to_string(first.await_address())}};
  EXPECT_EQ(third.await_exit(20s), 2) << third.log();
  EXPECT_NE(third.log().find("waggle: refused by all --initial-peers: another process uses this "
                             "identity"),
            std::string::npos)
    << third.log();
  // After all of them were killed, a new process with this identity is accepted.
  second.signal(SIGKILL);
  first.signal(SIGKILL);
  EXPECT_TRUE(first.await_signal());
  peer again{folder, "again", command};
  EXPECT_TRUE(
    eventually([&] { return metric(again.await_address(), "waggle_network_connections") >= 1; }))
    << again.log() << node.log();
}

} // namespace
} // namespace waggle::testing
