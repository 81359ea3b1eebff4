// Four processes with loops of their own make the same updates as one process that is given all
// their samples.

#include <cmath>
#include <iterator>
#include <regex>

#include "tests/processes/peer.hpp"

namespace waggle::testing {
namespace {

constexpr std::size_t peers = 4;
constexpr std::uint64_t epochs = 30;

struct setting {
  const char* name;
  const char* optimizer;
  const char* sizes; // of the slices
  const char* mode = "current";
};

void PrintTo(const setting& s, std::ostream* out) {
  *out << s.name;
}

std::vector<double> numbers_in(const std::filesystem::path& file) {
  std::ifstream in{file};
  return {std::istream_iterator<double>{in}, {}};
}

class Slices : public ::testing::TestWithParam<setting> {
protected:
  std::filesystem::path file(const std::string& name) const { return folder.path() / name; }
  std::string log(const std::string& name) const { return content_of(file(name + ".log")); }

  /// Its parameters go to the file `name`.
  child_process start(const std::string& use, const std::string& name,
                      const std::vector<std::string>& more = {}) const {
    const auto& how = GetParam();
    std::vector<std::string> arguments{WAGGLE_SLICED_LOOP, use,           how.mode,
                                       how.sizes,          how.optimizer, std::to_string(epochs),
                                       file(name).string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    auto started = child_process::start(arguments, file(name + ".log"));
    EXPECT_TRUE(started.ok());
    return std::move(*started);
  }
  child_process start_peer(std::size_t i, const std::string& through) const {
    auto name = "peer" + std::to_string(i);
    std::vector<std::string> only_peers{std::to_string(i), file(name + ".data").string()};
    if (!through.empty())
      only_peers.push_back(through);
    return start("train", name, only_peers);
  }
  /// Where the peer of this log listens.
  std::optional<std::string> address_of(const std::string& name) const {
    static const std::regex line{"listening on (127\\.0\\.0\\.1:\\d+)"};
    auto text = log(name);
    std::smatch found;
    return std::regex_search(text, found, line) ? std::optional{found[1].str()} : std::nullopt;
  }
  void await(child_process& process, const std::string& name) const {
    EXPECT_TRUE(eventually([&] { return process.ended().has_value(); }, 120s)) << log(name);
    EXPECT_EQ(process.ended(), 0) << log(name);
  }

  scratch_folder folder;
};

/// θ_{k+1} = θ_k − opt(g(θ_{k−1}))
using DelayedSlices = Slices;

TEST_P(DelayedSlices, APeerFollowsTheDelayedRecursion) { // F4
  auto one = start_peer(0, {});
  await(one, "peer0");
  auto alone = start("alone", "alone");
  await(alone, "alone");
  auto expected = numbers_in(file("alone"));
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(numbers_in(file("peer0")), expected);
}

INSTANTIATE_TEST_SUITE_P(Each, DelayedSlices,
                         ::testing::Values(setting{"Sgd", "sgd", "equal", "delayed"},
                                           setting{"Adam", "adam", "varying", "delayed"}),
                         [](const auto& info) { return std::string{info.param.name}; });

TEST_P(Slices, FourProcessesMakeTheUpdatesOfOne) {
  std::vector<child_process> running;
  running.push_back(start_peer(0, {}));
  ASSERT_TRUE(eventually([&] { return address_of("peer0").has_value(); })) << log("peer0");
  for (std::size_t i = 1; i < peers; ++i)
    running.push_back(start_peer(i, *address_of("peer0")));
  for (std::size_t i = 0; i < peers; ++i)
    await(running[i], "peer" + std::to_string(i));
  auto alone = start("alone", "alone");
  await(alone, "alone");
  auto expected = numbers_in(file("alone"));
  ASSERT_EQ(expected.size(), 8 * 16 + 16 + 16 * 4 + 4U);
  auto first = numbers_in(file("peer0"));
  for (std::size_t i = 0; i < peers; ++i) {
    auto actual = numbers_in(file("peer" + std::to_string(i)));
    EXPECT_EQ(actual, first) << "bit for bit";
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t k = 0; k < expected.size(); ++k)
      EXPECT_NEAR(actual[k], expected[k], 1e-6 + 1e-5 * std::abs(expected[k])) << k;
  }
}

INSTANTIATE_TEST_SUITE_P(
  Each, Slices,
  ::testing::Values(setting{"Sgd", "sgd", "equal"}, setting{"Momentum", "momentum", "equal"},
                    setting{"Adam", "adam", "equal"}, setting{"AdamW", "adamw", "equal"},
                    setting{"SgdOfUnequalBatches", "sgd", "varying"},
                    setting{"MomentumOfUnequalBatches", "momentum", "varying"},
                    setting{"AdamOfUnequalBatches", "adam", "varying"},
                    setting{"AdamWOfUnequalBatches", "adamw", "varying"},
                    setting{"DelayedSgd", "sgd", "equal", "delayed-together"}, // F4
                    setting{"DelayedAdamOfUnequalBatches", "adam", "varying", "delayed-together"}),
  [](const auto& info) { return std::string{info.param.name}; });

} // namespace
} // namespace waggle::testing
