#include "runtime/core/private_file.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

namespace waggle {
namespace {

namespace fs = std::filesystem;

TEST(PrivateFile, AFolderThatOthersCanWriteToIsNamedWithTheCure) {
  auto pattern = (fs::temp_directory_path() / "waggle-private-XXXXXX").string();
  fs::path folder = ::mkdtemp(pattern.data());
  for (unsigned mode : {0700U, 0755U, 0750U}) {
    fs::permissions(folder, fs::perms{mode});
    EXPECT_FALSE(writable_by_others(folder)) << std::oct << mode;
  }
  for (unsigned mode : {0777U, 0775U, 0702U}) {
    fs::permissions(folder, fs::perms{mode});
    auto warning = writable_by_others(folder);
    ASSERT_TRUE(warning) << std::oct << mode;
    EXPECT_NE(warning->find("chmod go-w '" + folder.string() + "'"), std::string::npos) << *warning;
  }
  fs::permissions(folder, fs::perms{01777}); // like /tmp: nobody can replace the files of others
  EXPECT_FALSE(writable_by_others(folder));
  fs::remove_all(folder);
  EXPECT_FALSE(writable_by_others(folder));
}

} // namespace
} // namespace waggle
