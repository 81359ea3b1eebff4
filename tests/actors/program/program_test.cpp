// The program as a shell runs it: any usage error ends with one sentence and exit code 2, before
// anything starts.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/cli/join_line.hpp"
#include "tests/support/scratch_folder.hpp"

using namespace waggle;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::StartsWith;

namespace {

struct outcome {
  int code = -1;
  std::string out;
  std::string err;
};

/// A listening socket on a free port of 127.0.0.1.
class taken_port {
public:
  taken_port() : handle_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(handle_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(handle_, 8), 0);
    EXPECT_EQ(::getsockname(handle_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~taken_port() { ::close(handle_); }
  taken_port(const taken_port&) = delete;
  taken_port& operator=(const taken_port&) = delete;
  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

private:
  int handle_;
  int port_ = 0;
};

class Program : public ::testing::Test {
protected:
  /// Runs `waggle ARGUMENTS` in the test's folder, with `environment` ("NAME=value …") set.
  outcome run(const std::string& arguments, const std::string& environment = {}) {
    auto command = "cd " + shell_word(folder_.string()) + " && env " + environment + " timeout 60 "
                   + shell_word(WAGGLE_PROGRAM) + " " + arguments + " >out 2>err </dev/null";
    auto status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text_of("out"), text_of("err")};
  }

  /// The one sentence with which it refuses.
  std::string refusal(const std::string& arguments, const std::string& environment = {}) {
    auto ended = run(arguments, environment);
    EXPECT_EQ(ended.code, 2) << arguments << "\n" << ended.err;
    EXPECT_EQ(ended.out, "") << arguments;
    EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << arguments << "\n"
                                                                       << ended.err;
    EXPECT_THAT(ended.err, StartsWith("waggle: ")) << arguments;
    return ended.err;
  }

  [[nodiscard]] std::string text_of(const std::string& name) const {
    std::ifstream in{folder_ / name};
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream{folder_ / name} << text;
  }

  waggle::testing::scratch_folder scratch_;
  const std::filesystem::path& folder_ = scratch_.path();
};

TEST_F(Program, RefusesATakenPort) {
  taken_port port;
  EXPECT_THAT(refusal("node --listen " + port.address()),
              HasSubstr("cannot listen on " + port.address()));
  EXPECT_THAT(refusal("average --rounds 1 --listen " + port.address()),
              HasSubstr("the port is taken"));
}

TEST_F(Program, RefusesAddressesThatAreNotItsOwn) {
  EXPECT_THAT(refusal("node --listen 192.0.2.77:0"), HasSubstr("192.0.2.77"));
}

TEST_F(Program, RefusesUnreadableRunFiles) {
  EXPECT_THAT(refusal("node --config none.toml"), HasSubstr("none.toml"));
  EXPECT_THAT(refusal("node --config ."), HasSubstr("folder"));
  write("wrong.toml", "run-id = = 3\n");
  EXPECT_THAT(refusal("node --config wrong.toml"), HasSubstr("wrong.toml:1"));
  EXPECT_THAT(refusal("node", "WAGGLE_CONFIG=wrong.toml"), HasSubstr("wrong.toml:1"));
}

TEST_F(Program, RefusesFoldersItCannotWrite) {
  write("file", "");
  EXPECT_THAT(refusal("node --listen 127.0.0.1:0 --data-dir file"),
              HasSubstr("/file: Not a directory"));
  EXPECT_THAT(refusal("node --listen 127.0.0.1:0 --data-dir /proc/none"), HasSubstr("/proc/none"));
  EXPECT_THAT(refusal("id --data-dir /proc/none"), HasSubstr("/proc/none"));
  EXPECT_THAT(refusal("swarm --data-dir file"), HasSubstr("/file: Not a directory"));
}

TEST_F(Program, RefusesAnIdentityThatIsNone) {
  write("key.pem", "not a key\n");
  EXPECT_THAT(refusal("node --listen 127.0.0.1:0 --identity key.pem"), HasSubstr("key.pem"));
  EXPECT_THAT(refusal("id --identity key.pem"), HasSubstr("key.pem"));
}

TEST_F(Program, RefusesImpossibleCombinations) {
  EXPECT_THAT(refusal("node --client-mode"), HasSubstr("--initial-peers"));
  EXPECT_THAT(refusal("average --matchmaking-time 5s --averaging-timeout 5s"),
              HasSubstr("--averaging-timeout"));
  EXPECT_THAT(refusal("swarm --peers 1 --kill-after 5s"), HasSubstr("--peers"));
  EXPECT_THAT(refusal("swarm --schedule warmup-cosine"), HasSubstr("--epochs"));
}

TEST_F(Program, RefusesMisspeltCommandsOptionsAndKeys) {
  EXPECT_THAT(refusal("nod"), HasSubstr("'node'"));
  EXPECT_THAT(refusal("node --run-idd x"), HasSubstr("--run-id"));
  write("run.toml", "[peer]\nlissten = \"127.0.0.1:0\"\n");
  EXPECT_THAT(refusal("node --config run.toml"), HasSubstr("run.toml:2"));
  EXPECT_THAT(refusal("config check run.toml"), HasSubstr("'listen'"));
}

TEST_F(Program, MisspeltVariablesAreToldAndThoseOfKubernetesKeepNothingFromStarting) {
  auto started = run("id --data-dir d", "WAGGLE_DATA_DIRR=x WAGGLE_PORT=tcp://10.0.0.1:7700 "
                                        "WAGGLE_SERVICE_HOST=10.0.0.1");
  EXPECT_EQ(started.code, 0) << started.err;
  EXPECT_EQ(started.out.size(), 65U) << started.out;
  EXPECT_THAT(started.err, HasSubstr("waggle: warning: there is no option for the environment's "
                                     "WAGGLE_DATA_DIRR, which is ignored; the nearest is "
                                     "WAGGLE_DATA_DIR\n"));
  EXPECT_THAT(started.err,
              HasSubstr("ignored in the environment: WAGGLE_PORT, WAGGLE_SERVICE_HOST (Kube"));
}

TEST_F(Program, RefusesMissingArguments) {
  EXPECT_THAT(refusal("health 7700"), HasSubstr("HOST:PORT"));
  EXPECT_THAT(refusal("config"), HasSubstr("check"));
  EXPECT_THAT(refusal("config check"), HasSubstr("FILE"));
  EXPECT_THAT(refusal("config chekc run.toml"), HasSubstr("check"));
  EXPECT_THAT(refusal("status 7700"), HasSubstr("HOST:PORT"));
}

TEST_F(Program, RefusesASummaryItCannotWriteBeforeItStartsAnything) {
  EXPECT_THAT(refusal("swarm --json none/summary.json"), HasSubstr("none/summary.json"));
  EXPECT_THAT(refusal("swarm --json"), HasSubstr("--json"));
}

TEST_F(Program, RefusesTrainingInThePeersWords) {
  // Without LibTorch the error says so; with LibTorch the data is missing.
  auto alone = refusal("train --listen 127.0.0.1:0 --data none.txt --data-dir mine");
  auto ended = run("swarm --peers 1 --data none.txt --data-dir swarm");
  EXPECT_EQ(ended.code, 2) << ended.err;
  EXPECT_EQ(ended.err, alone);
}

TEST_F(Program, OneDataFolderServesOnePeer) {
  // The second finds the first's lock while the first runs.
  auto both =
    "cd " + shell_word(folder_.string()) + " || exit 7; " + shell_word(WAGGLE_PROGRAM)
    + " node --listen 127.0.0.1:0 --data-dir d 2>first & first=$!; "
      "until grep -q 'listening on' first 2>/dev/null; do kill -0 $first || exit 9; done; "
    + shell_word(WAGGLE_PROGRAM)
    + " node --listen 127.0.0.1:0 --data-dir d 2>second; code=$?; "
      "kill -TERM $first; wait $first || exit 8; exit $code";
  auto status = std::system(both.c_str());
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 2);
  EXPECT_THAT(text_of("second"), ContainsRegex("another peer uses --data-dir /.*/d"));
}

TEST_F(Program, AnIdentityIsMadeOnceAndKeptPrivate) {
  auto first = run("id --data-dir d");
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(first.out.size(), 65U) << "64 hexadecimal digits and a line end";
  EXPECT_EQ(run("id --data-dir d").out, first.out);
  EXPECT_EQ(run("id", "WAGGLE_DATA_DIR=d").out, first.out);
  EXPECT_NE(run("id --data-dir other").out, first.out);
  struct stat file {};
  ASSERT_EQ(::stat((folder_ / "d" / "identity.pem").c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777U, 0600U);
}

TEST_F(Program, ARunFileThatIsFineIsSaidToBe) {
  write("run.toml", "run-id = \"demo\"\n[training]\nlr = 0.01\n");
  auto checked = run("config check run.toml");
  EXPECT_EQ(checked.code, 0) << checked.err;
  EXPECT_THAT(checked.out, HasSubstr("2 options, all fine"));
}

TEST_F(Program, ARunFileThatTrainingRefusesIsRefused) {
  write("data.toml", "data = \"nowhere.txt\"\n");
  EXPECT_THAT(refusal("config check data.toml"), HasSubstr("nowhere.txt"));
  write("search.toml", "lr = 0.01\nmatchmaking-time = \"2s\"\n");
  EXPECT_THAT(refusal("config check search.toml"), HasSubstr("--matchmaking-time"));
  write("average.toml", "elements = 9\nmatchmaking-time = \"2s\"\n");
  auto checked = run("config check average.toml");
  EXPECT_EQ(checked.code, 0) << checked.err;
  EXPECT_THAT(checked.out, HasSubstr("fine for waggle average"));
  EXPECT_THAT(checked.out, HasSubstr("waggle train refuses"));
}

TEST_F(Program, APeerThatDoesNotAnswerIsAFailureNotAMisuse) {
  std::string gone;
  {
    taken_port port;
    gone = port.address();
  }
  auto asked = run("status " + gone);
  EXPECT_EQ(asked.code, 1);
  EXPECT_THAT(asked.err, HasSubstr(gone));
  EXPECT_EQ(std::count(asked.err.begin(), asked.err.end(), '\n'), 1) << asked.err;
}

TEST_F(Program, StatusIsForPeopleAndAsJsonForScripts) {
  auto both = "cd " + shell_word(folder_.string()) + " || exit 7; " + shell_word(WAGGLE_PROGRAM)
              + " node --listen 127.0.0.1:0 --run-id demo --data-dir d 2>peer & peer=$!; "
                "until grep -q 'listening on' peer 2>/dev/null; do kill -0 $peer || exit 9; done; "
                "address=$(sed -n 's/^listening on //p' peer); "
              + shell_word(WAGGLE_PROGRAM) + " status $address >table || exit 6; "
              + shell_word(WAGGLE_PROGRAM)
              + " status --json $address >json; code=$?; kill -TERM $peer; wait $peer || exit 8; "
                "exit $code";
  auto status = std::system(both.c_str());
  ASSERT_TRUE(WIFEXITED(status));
  ASSERT_EQ(WEXITSTATUS(status), 0) << text_of("peer");
  auto table = text_of("table");
  EXPECT_THAT(table, HasSubstr("run                   demo\n"));
  EXPECT_THAT(table, HasSubstr("epoch                 -\n")) << "a node has no epoch";
  EXPECT_THAT(table, HasSubstr("samples               offered -, used -, dropped -, pending -\n"));
  EXPECT_EQ(table.find_first_of("{}\""), std::string::npos) << table;
  EXPECT_THAT(text_of("json"), HasSubstr("\"peer_list\": ["));
}

TEST_F(Program, AReplayIsPrintedOrShownNotBoth) {
  auto ended = run("replay --json --listen 127.0.0.1:0 .");
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(
    ended.err,
    HasSubstr("--json, --since and --only are for the printed events, and --listen shows a page"));
}

TEST_F(Program, APeerEndsCleanlyAfterItsDurationAndPrintsTheJoinLineLast) {
  auto ended = run("node --listen 127.0.0.1:0 --announce 127.0.0.1:0 --run-id demo --duration "
                   "200ms --data-dir d --log-level error");
  EXPECT_EQ(ended.code, 0) << ended.err;
  auto at = ended.err.find("listening on 127.0.0.1:");
  ASSERT_NE(at, std::string::npos) << ended.err;
  auto address = ended.err.substr(at + 13, ended.err.find('\n', at) - at - 13);
  EXPECT_THAT(ended.err, ::testing::EndsWith("waggle train --run-id demo --initial-peers " + address
                                             + " --listen '[::]:0' --announce 127.0.0.1:0\n"));
}

TEST_F(Program, TheStartIsWrittenAsObjectsWithALogInJson) {
  auto ended = run("node --listen 127.0.0.1:0 --run-id demo --duration 200ms --data-dir d "
                   "--log-level error --log-format json");
  EXPECT_EQ(ended.code, 0) << ended.err;
  std::istringstream lines{ended.err};
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    auto record = nlohmann::json::parse(line);
    EXPECT_EQ(record["level"], "info") << line;
    last = record["message"];
  }
  EXPECT_THAT(last, StartsWith("join with:\nwaggle train --run-id demo --initial-peers"));
}

TEST_F(Program, HelpAndVersionAreNoErrors) {
  for (const char* arguments : {"--help", "help", "--version", "node --help", "train --help",
                                "swarm --help", "status --help"}) {
    auto ended = run(arguments);
    EXPECT_EQ(ended.code, 0) << arguments;
    EXPECT_EQ(ended.err, "") << arguments;
    EXPECT_NE(ended.out, "") << arguments;
  }
}

} // namespace
