// `waggle doctor` with one planted fault at a time: before a start, and in a swarm. What needs a
// network, a clock or a disk of its own is planted in tests/processes/reach.

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "tests/processes/peer.hpp"

namespace waggle::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

using words = std::vector<std::string>;

/// What the doctor says, and its exit code.
struct said {
  int code = -1;
  std::string text;

  [[nodiscard]] int lines_of(const std::string& level) const {
    std::istringstream lines{text};
    int count = 0;
    for (std::string line; std::getline(lines, line);)
      count += line.starts_with(level + " ") ? 1 : 0;
    return count;
  }
};

class Doctor : public ::testing::Test {
protected:
  const words small{
    "--run-id",        "seen", "--width",       "16", "--layers", "1", "--target-batch-size", "32",
    "--step-interval", "20ms", "--micro-batch", "4"};

  said run(words arguments) {
    auto log = folder.path() / ("doctor" + std::to_string(++runs_));
    arguments.insert(arguments.begin(), {WAGGLE_PROGRAM, "doctor"});
    auto started = child_process::start(arguments, log);
    EXPECT_TRUE(started);
    std::optional<int> status;
    EXPECT_TRUE(eventually([&] { return (status = started->ended()).has_value(); }));
    return {status && WIFEXITED(*status) ? WEXITSTATUS(*status) : -1, content_of(log)};
  }
  /// Before a start.
  said look(const words& more) {
    words all;
    for (std::size_t i = 0; i + 1 < small.size(); i += 2) // no option is given twice
      if (std::ranges::find(more, small[i]) == more.end())
        all.insert(all.end(), {small[i], small[i + 1]});
    if (std::ranges::find(more, "--data-dir") == more.end())
      all.insert(all.end(), {"--data-dir", (folder.path() / "new").string()});
    if (std::ranges::find(more, "--listen") == more.end())
      all.insert(all.end(), {"--listen", "127.0.0.1:0"});
    all.insert(all.end(), more.begin(), more.end());
    return run(all);
  }
  std::string file(const std::string& name, const std::string& text, mode_t mode = 0600) {
    auto path = folder.path() / name;
    fs::create_directories(path.parent_path());
    std::ofstream{path} << text;
    ::chmod(path.c_str(), mode);
    return path.string();
  }
  words trains(const words& more = {}) {
    words all{"train"};
    all.insert(all.end(), small.begin(), small.end());
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  scratch_folder folder;

private:
  int runs_ = 0;
};

TEST_F(Doctor, NamesEachFaultBeforeAStartAndNothingElse) {
  peer first{folder, "first", trains()};
  auto where = first.await_address();
  ASSERT_TRUE(eventually([&] { return net::http_get(where, "/readyz", 5s)->status == 200; }));
  auto at = to_string(where);
  auto healthy = look({"--initial-peers", at});
  EXPECT_EQ(healthy.code, 0) << healthy.text;
  EXPECT_THAT(healthy.text, HasSubstr("data, model and device can be used"));
  EXPECT_FALSE(fs::exists(folder.path() / "new")) << "it makes nothing";

  auto copy = folder.path() / "copy";
  fs::copy(folder.path() / "first", copy, fs::copy_options::recursive);
  auto trained = folder.path() / "trained"; // a folder with a checkpoint
  {
    peer done{folder, "trained", trains({"--epochs", "3", "--linger", "0s"})};
    ASSERT_TRUE(eventually([&] { return !done.runs(); })) << done.log();
  }
  auto damaged = folder.path() / "damaged";
  fs::copy(trained, damaged, fs::copy_options::recursive);
  for (const auto& each : fs::directory_iterator{damaged / "checkpoints"})
    if (each.path().extension() == ".wgl")
      fs::resize_file(each.path(), fs::file_size(each.path()) / 2);
  auto elsewhere = folder.path() / "elsewhere"; // a copy on another machine: no such process
  fs::copy(folder.path() / "first", elsewhere, fs::copy_options::recursive);
  fs::remove(elsewhere / "address");
  peer second{folder, "second", trains({"--initial-peers", at})};
  ASSERT_TRUE(eventually([&] {
    auto peers = net::http_get(where, "/api/v1/peers", 5s);
    return peers && peers->body.find("\"connected\":true") != std::string::npos;
  }))
    << second.log();
  file("no-key/identity.pem", "this is no key");
  file("open-key/identity.pem", "this is no key", 0644);
  for (const auto* name : {"no-key", "open-key"})
    ::chmod((folder.path() / name).c_str(), 0700);
  fs::create_directory(folder.path() / "open-folder");
  ::chmod((folder.path() / "open-folder").c_str(), 0777);
  for (const auto* name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"})
    file("images/" + std::string{name}, "no images");
  auto of = [&](const std::string& name) { return (folder.path() / name).string(); };
  enum class level { bad, warning, refused }; // refused: like a misspelt option, before any look
  using enum level;
  struct fault {
    words options;
    std::string named;
    level how = bad;
  };
  const std::vector<fault> faults{
    // data and model
    {{"--data", of("nowhere")}, "nowhere"},
    {{"--data", file("empty/none.bin", "")}, "--data"},
    {{"--data", file("short.txt", "too short")}, "has no text of at least"},
    {{"--data", file("whole.bin", std::string(1'000, '\1'))}, "--classes N says how many"},
    {{"--data", file("half.bin", std::string(1'001, '\1')), "--classes", "257"}, "has 1001 bytes"},
    {{"--data", of("images"), "--model", "cnn"}, "a file of labels in IDX format begins with"},
    {{"--eval-data", of("nowhere")}, "--eval-data"},
    {{"--model", "cnn"}, "--model cnn learns images"},
    {{"--model", of("net.pt")}, "net.pt"},
    {{"--from", of("before.safetensors")}, "before.safetensors"},
    {{"--heads", "3"}, "--heads 3 must divide --width 16", refused},
    {{"--schedule", "cosine"}, "needs its length", refused},
    // machine
    {{"--device", "cuda:7"}, "--device cuda"},
    {{"--device", "tpu"}, "--device: 'tpu' is not one of", refused},
    {{"--precision", "float16", "--device", "cpu"}, "--precision float16 needs a GPU"},
    {{"--width", "65536", "--layers", "64"}, "needs about"},
    // folder and key
    {{"--data-dir", copy.string()}, "is a copy of the folder of the peer that runs at"},
    {{"--data-dir", of("no-key")}, "is not an Ed25519 private key"},
    {{"--identity", of("no-key/identity.pem")}, "is not an Ed25519 private key"},
    {{"--data-dir", of("open-key")}, "chmod 600"},
    {{"--data-dir", of("open-folder")}, "chmod go-w", warning},
    {{"--data-dir", file("a-file", "x")}, "is no folder"},
    {{"--data-dir", trained.string(), "--width", "32"}, "a model with other parameters", warning},
    {{"--data-dir", damaged.string()}, "no checkpoint can be used", warning},
    {{"--config", file("run.toml", "nonsense = 1\n")}, "there is no option 'nonsense'", refused},
    // addresses
    {{"--listen", at}, "the port is taken"},
    {{"--listen", "192.0.2.1:7700"}, "this machine has no such address"},
    {{"--announce", "nowhere.invalid:7700"}, "cannot announce nowhere.invalid:7700"},
    {{"--client-mode"}, "--client-mode needs --initial-peers", refused},
    {{"--initial-peers", "127.0.0.1"}, "the port is missing", refused},
    {{"--initial-peers", "127.0.0.1:9"}, "nothing accepts connections"},
    // the run
    {{"--averaging-timeout", "10s", "--allreduce-timeout", "20s"}, "ends the round first", refused},
    {{"--initial-peers", at, "--run-id", "another"}, "same --run-id"},
    {{"--initial-peers", at, "--lr", "0.5"}, "lr is 0.5 here"},
    {{"--initial-peers", at, "--announce", "127.0.0.1:9"}, "open or forward that port"},
    {{"--initial-peers", to_string(second.await_address()), "--data-dir", elsewhere.string()},
     "a peer with the identity of this data folder runs already"},
  };
  for (const auto& each : faults) {
    auto found = look(each.options);
    EXPECT_EQ(found.code, each.how == refused ? 2
                          : each.how == bad   ? 1
                                              : 0)
      << each.named << "\n"
      << found.text;
    EXPECT_EQ(found.lines_of("bad"), each.how == bad ? 1 : 0) << each.named << "\n" << found.text;
    if (each.how == warning) {
      EXPECT_EQ(found.lines_of("warning"), healthy.lines_of("warning") + 1) << found.text;
    }
    EXPECT_THAT(found.text, HasSubstr(each.named));
  }
  auto metrics = net::http_get(where, "/metrics", 5s);
  for (const auto* reason : {"wrong_run", "agreement_mismatch"}) {
    auto line = metrics->body.find("reason=\"" + std::string{reason} + "\"");
    EXPECT_EQ(metrics->body.substr(metrics->body.find("} ", line), 3), "} 0")
      << "a look pages nobody: " << reason;
  }
  EXPECT_THAT(first.log(), Not(HasSubstr("lr is 0.5")));
  auto peers = nlohmann::json::parse(net::http_get(where, "/api/v1/peers", 5s)->body);
  EXPECT_TRUE(peers["left"].empty()) << "nor is it listed: " << peers["left"];
}

TEST_F(Doctor, NamesAPeerThatWasKilledOrIsFrozen) {
  peer first{folder, "first", trains()};
  auto where = first.await_address();
  auto at = to_string(where);
  peer frozen{folder, "frozen", trains({"--initial-peers", at})};
  peer killed{folder, "killed", trains({"--initial-peers", at})};
  peer leaves{folder, "leaves", trains({"--initial-peers", at})};
  auto peers = [&] {
    auto answer = net::http_get(where, "/api/v1/peers", 5s);
    return answer ? nlohmann::json::parse(answer->body) : nlohmann::json{};
  };
  auto group = [&] {
    auto answer = net::http_get(where, "/api/v1/status", 5s);
    return answer ? nlohmann::json::parse(answer->body).value("group_size", 0) : 0;
  };
  ASSERT_TRUE(eventually([&] { return group() == 4; })) << first.log();
  auto healthy = run({at});
  EXPECT_EQ(healthy.code, 0) << healthy.text;
  auto encrypted = run({"https://" + at});
  EXPECT_EQ(encrypted.code, 0) << encrypted.text;
  leaves.signal(SIGTERM);
  ASSERT_TRUE(eventually([&] { return peers()["left"].size() == 1 && !leaves.runs(); }));
  auto ordered = run({at});
  EXPECT_EQ(ordered.code, 0) << ordered.text;
  EXPECT_THAT(ordered.text, HasSubstr("good     left"));
  killed.signal(SIGKILL);
  frozen.signal(SIGSTOP);
  auto soon = run({at});
  EXPECT_EQ(soon.code, 1) << "before the others have found out: " << soon.text;
  ASSERT_TRUE(eventually([&] { return peers()["left"].size() == 3; })) << peers();
  auto found = run({at});
  EXPECT_EQ(found.code, 1);
  EXPECT_EQ(found.lines_of("bad"), 2) << found.text;
  EXPECT_THAT(found.text, HasSubstr("its process has ended"));
  EXPECT_THAT(found.text, HasSubstr("its process is frozen"));
  auto status = folder.path() / "status";
  auto shown = child_process::start({WAGGLE_PROGRAM, "status", at}, status);
  EXPECT_TRUE(eventually([&] { return shown->ended().has_value(); }));
  EXPECT_THAT(content_of(status), HasSubstr("left in the last ten minutes"));
  frozen.signal(SIGCONT);
}

} // namespace
} // namespace waggle::testing
