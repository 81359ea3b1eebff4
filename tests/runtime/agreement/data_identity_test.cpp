#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/agreement/data_files.hpp"
#include "tests/support/scratch_folder.hpp"

namespace waggle {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr, ::testing::StartsWith;

/// Empty: no data at `path`.
std::string data_identity(const fs::path& path, std::size_t shortest) {
  auto listed = list_data_files(path, shortest);
  return listed ? identity_of(listed->files) : std::string{};
}

class DataIdentity : public ::testing::Test {
protected:
  /// A data set of these files: name, size.
  fs::path make(const std::string& name,
                const std::vector<std::pair<std::string, std::size_t>>& files) const {
    auto path = folder_ / name;
    fs::create_directories(path);
    for (const auto& [file, size] : files)
      std::ofstream{path / file} << std::string(size, 'x');
    return path;
  }

  testing::scratch_folder scratch_;
  const fs::path& folder_ = scratch_.path();
};

TEST_F(DataIdentity, DoesNotDependOnWhereTheFilesLie) {
  auto a = make("a", {{"one.txt", 100}, {"two.txt", 200}});
  auto b = make("b", {{"two.txt", 200}, {"one.txt", 100}});
  EXPECT_EQ(data_identity(a, 10), data_identity(b, 10));
  EXPECT_THAT(data_identity(a, 10), StartsWith("2 files of 300 bytes, "));
  EXPECT_EQ(data_identity(a / "one.txt", 10), data_identity(b / "one.txt", 10));
  EXPECT_EQ(data_identity(a / "one.txt", 10), "one.txt of 100 bytes");
}

TEST_F(DataIdentity, DependsOnNamesAndSizes) {
  auto base = data_identity(make("a", {{"one", 100}, {"two", 200}}), 10);
  EXPECT_NE(base, data_identity(make("b", {{"one", 200}, {"two", 100}}), 10));
  EXPECT_NE(base, data_identity(make("c", {{"one", 100}, {"three", 200}}), 10));
  EXPECT_NE(base, data_identity(make("d", {{"one", 100}, {"two", 200}, {"x", 10}}), 10));
}

TEST_F(DataIdentity, OfSeveralFilesNamesTheFirstThatDiffers) {
  auto of = [&](const char* name, std::size_t size, std::size_t files = 2) {
    std::vector<std::pair<std::string, std::size_t>> all{{"b.txt", 100}};
    for (std::size_t i = 1; i < files; ++i)
      all.emplace_back("c" + std::to_string(i), size);
    auto listed = list_data_files(make(name, all), 10);
    run_agreement out;
    EXPECT_TRUE(
      out.add(listed_field("data", identity_of(listed->files) + lines_of(listed->files))));
    return out;
  };
  EXPECT_EQ(disagreement(of("a", 20), of("b", 20)), std::nullopt);
  EXPECT_THAT(disagreement(of("a", 20), *run_agreement::decode(of("d", 21).encode())).value_or(""),
              ::testing::AllOf(StartsWith("data is 2 files of 120 bytes, "),
                               HasSubstr("the first that differs is 'c1 of 20 bytes' here")));
  EXPECT_THAT(disagreement(of("e", 20), of("f", 20, 1)).value_or(""),
              ::testing::AllOf(HasSubstr("here and b.txt of 100 bytes there"),
                               ::testing::Not(HasSubstr("#"))));
  EXPECT_THAT(disagreement(of("g", 20, 900), of("h", 21, 900)).value_or(""), HasSubstr("c1 of 20"));
  EXPECT_EQ(listed_field("data", "").value, "");
}

TEST_F(DataIdentity, LeavesOutWhatIsNotLearnedFrom) {
  auto base = data_identity(make("a", {{"one", 100}, {"two", 200}}), 65);
  auto more = make("b", {{"one", 100}, {"two", 200}, {"short", 64}});
  fs::create_symlink(more / "one", more / "link");
  fs::create_directory(more / "folder");
  EXPECT_EQ(data_identity(more, 65), base);
}

TEST_F(DataIdentity, IsEmptyWhereThereIsNothing) {
  EXPECT_EQ(data_identity(folder_ / "none", 1), "");
  EXPECT_EQ(data_identity(make("empty", {}), 1), "");
}

TEST_F(DataIdentity, CanAlwaysBeShownInOneLine) {
  EXPECT_EQ(data_identity(make("a", {{"b\nc", 10}}), 1), "b?c of 10 bytes");
}

} // namespace
} // namespace waggle
