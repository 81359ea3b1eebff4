#include "runtime/crypto/swarm_key.hpp"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "runtime/core/bytes.hpp"
#include "runtime/crypto/run_secret.hpp"
#include "tests/support/scratch_folder.hpp"

namespace waggle {
namespace {

using ::testing::HasSubstr;

class SwarmKey : public ::testing::Test {
protected:
  SwarmKey() { file = folder / "birds.key"; }

  void write(const std::string& content, mode_t mode = 0600) const {
    std::ofstream{file, std::ios::binary} << content;
    ::chmod(file.c_str(), mode);
  }
  [[nodiscard]] std::string refusal() const {
    auto read = load_swarm_key(file);
    EXPECT_FALSE(read);
    return read ? std::string{} : read.error().detail;
  }

  testing::scratch_folder scratch_;
  const std::filesystem::path& folder = scratch_.path();
  std::filesystem::path file;
};

TEST_F(SwarmKey, IsReadAsItWasWrittenByItsOwnerOnly) {
  auto key = make_swarm_key();
  ASSERT_TRUE(save_swarm_key(key, file));
  struct stat found {};
  ASSERT_EQ(::stat(file.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777U, 0600U);
  EXPECT_EQ(found.st_size, 32);
  EXPECT_EQ(*load_swarm_key(file), key);
  EXPECT_NE(make_swarm_key(), key);
  EXPECT_FALSE(save_swarm_key(make_swarm_key(), file)) << "no key is overwritten";
}

TEST_F(SwarmKey, IsReadAsDigitsToo) {
  auto key = make_swarm_key();
  write(to_hex(key.view()) + "\n");
  EXPECT_EQ(*load_swarm_key(file), key);
  EXPECT_EQ(*parse_inline_key(inline_text(key)), key);
}

TEST_F(SwarmKey, EachBadFileGetsASentenceThatSaysWhatToDo) {
  EXPECT_THAT(refusal(), HasSubstr("waggle id --swarm-key FILE")); // there is none
  write("correct horse battery");
  EXPECT_THAT(refusal(), HasSubstr("a passphrase is not a key"));
  write("");
  EXPECT_THAT(refusal(), HasSubstr("a passphrase is not a key"));
  write(std::string(33, 'x'));
  EXPECT_THAT(refusal(), HasSubstr("32 random bytes"));
  write(std::string(8192, 'a'));
  EXPECT_THAT(refusal(), HasSubstr("32 random bytes"));
  write(std::string(32, 'x'), 0640);
  EXPECT_THAT(refusal(), HasSubstr("chmod 600"));
  std::filesystem::remove(file);
  std::filesystem::create_directory(file);
  EXPECT_THAT(refusal(), HasSubstr("is not a regular file"));
}

TEST_F(SwarmKey, ASentenceAboutTheKeyInARunFileDoesNotShowIt) {
  for (const std::string text : {"key:", "key:0123", "key:zz", "0123"}) {
    auto read = parse_inline_key(text);
    EXPECT_THAT(read.error().detail, HasSubstr("64 hexadecimal digits"));
    EXPECT_EQ(read.error().detail.find("0123"), std::string::npos);
  }
}

TEST_F(SwarmKey, TellsRunsApartAsANameDoes) {
  auto key = make_swarm_key();
  auto other = make_swarm_key();
  EXPECT_EQ(run_id_of(key), run_id_of(key));
  EXPECT_NE(run_id_of(key), run_id_of(other));
  EXPECT_EQ(run_id_of(key).find(to_hex(key.view())), std::string::npos);
  auto shown = run_secret{key}.proof("connection");
  EXPECT_TRUE(run_secret{key}.proves("connection", shown.raw()));
  EXPECT_FALSE(run_secret{other}.proves("connection", shown.raw()));
  EXPECT_FALSE(run_secret{run_id_of(key)}.proves("connection", shown.raw()))
    << "what stands in records does not open the run";
}

} // namespace
} // namespace waggle
