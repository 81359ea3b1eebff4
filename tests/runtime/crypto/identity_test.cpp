#include "runtime/crypto/identity.hpp"

#include <fstream>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "runtime/crypto/digest.hpp"
#include "tests/support/scratch_folder.hpp"

namespace waggle {
namespace {

namespace fs = std::filesystem;

class identity_files : public ::testing::Test {
protected:
  testing::scratch_folder scratch_;
  const fs::path& folder = scratch_.path();
};

TEST(Digest, IsSha256) {
  EXPECT_EQ(to_string(sha256("")),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(to_string(sha256("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Digest, APieceAtATimeIsTheSameAsAtOnce) {
  EXPECT_EQ(sha256_stream{}.add("a").add("").add("bc").finish(), sha256("abc"));
}

TEST(Identity, IsNamedByTheHashOfItsKey) {
  auto who = identity::generate();
  EXPECT_EQ(who->id().bytes, sha256(who->key().view()).bytes);
  EXPECT_NE(identity::generate()->id(), who->id());
}

TEST(Identity, ASeedDeterminesIt) {
  EXPECT_EQ(identity::from_seed(1)->key(), identity::from_seed(1)->key());
  EXPECT_NE(identity::from_seed(1)->key(), identity::from_seed(2)->key());
}

TEST(Identity, OnlyItsOwnSignatureOfTheSameBytesVerifies) {
  for (const auto& verifier : {make_plain_verifier(), make_caching_verifier(8)}) {
    auto ann = identity::from_seed(1);
    auto bob = identity::from_seed(2);
    auto by = ann->sign("hello");
    for (int twice = 0; twice < 2; ++twice) {
      EXPECT_TRUE(verifier->verify(ann->key(), as_byte_span("hello"), by));
      EXPECT_FALSE(verifier->verify(bob->key(), as_byte_span("hello"), by));
      EXPECT_FALSE(verifier->verify(ann->key(), as_byte_span("hellO"), by));
      EXPECT_FALSE(verifier->verify(ann->key(), as_byte_span(""), by));
      auto bent = by;
      bent.bytes[63] ^= std::byte{1};
      EXPECT_FALSE(verifier->verify(ann->key(), as_byte_span("hello"), bent));
      EXPECT_FALSE(verifier->verify(public_key{}, as_byte_span("hello"), by));
      EXPECT_FALSE(verifier->verify(ann->key(), as_byte_span("hello"), signature{}));
    }
  }
}

TEST(Identity, TheCacheEvictsEntriesAndStaysCorrect) {
  auto verifier = make_caching_verifier(2);
  auto ann = identity::from_seed(1);
  for (int i = 0; i < 20; ++i) {
    auto text = "message " + std::to_string(i % 7);
    EXPECT_TRUE(verifier->verify(ann->key(), as_byte_span(text), ann->sign(text)));
    EXPECT_FALSE(verifier->verify(ann->key(), as_byte_span(text + "!"), ann->sign(text)));
  }
}

TEST_F(identity_files, IsSavedForItsOwnerOnlyAndLoadedAgain) {
  auto path = folder / "deep" / "er" / "id.pem";
  auto first = identity::load_or_create(path);
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
  auto again = identity::load_or_create(path);
  EXPECT_EQ((*again)->id(), (*first)->id());
  auto by = (*again)->sign("x");
  EXPECT_TRUE(make_plain_verifier()->verify((*first)->key(), as_byte_span("x"), by));
}

TEST_F(identity_files, AnExistingFileIsNeverReplaced) {
  auto path = folder / "id.pem";
  ASSERT_TRUE(identity::from_seed(1)->save(path).ok());
  EXPECT_EQ(identity::from_seed(2)->save(path).error().code, ec::io_error);
  EXPECT_EQ((*identity::load(path))->id(), identity::from_seed(1)->id());
  EXPECT_EQ(std::distance(fs::directory_iterator{folder}, fs::directory_iterator{}), 1)
    << "no temporary file is left";
}

TEST_F(identity_files, AFileThatIsNotAKeyIsRefusedWithASentence) {
  auto path = folder / "id.pem";
  std::ofstream{path} << "-----BEGIN PRIVATE KEY-----\nnonsense\n-----END PRIVATE KEY-----\n";
  fs::permissions(path, fs::perms{0600});
  auto outcome = identity::load_or_create(path);
  EXPECT_EQ(outcome.error().code, ec::bad_config);
  EXPECT_NE(outcome.error().detail.find("id.pem"), std::string::npos);
  EXPECT_NE(outcome.error().detail.find("not an Ed25519"), std::string::npos);
  EXPECT_EQ(identity::load(folder / "missing.pem").error().code, ec::io_error);
}

TEST_F(identity_files, AKeyThatOtherUsersCanReadIsRefusedWithTheCure) {
  auto path = folder / "id.pem";
  ASSERT_TRUE(identity::from_seed(1)->save(path).ok());
  for (unsigned mode : {0666U, 0640U, 0604U, 0620U, 0601U}) {
    fs::permissions(path, fs::perms{mode});
    auto outcome = identity::load_or_create(path);
    ASSERT_FALSE(outcome.ok()) << std::oct << mode;
    EXPECT_EQ(outcome.error().code, ec::bad_config);
    EXPECT_NE(outcome.error().detail.find("chmod 600 '" + path.string() + "'"), std::string::npos)
      << outcome.error().detail;
  }
  for (unsigned mode : {0600U, 0400U}) {
    fs::permissions(path, fs::perms{mode});
    EXPECT_TRUE(identity::load_or_create(path).ok()) << std::oct << mode;
  }
}

TEST_F(identity_files, WhatIsNoRegularFileIsRefusedAtOnce) {
  auto path = folder / "id.pem";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0); // reading it would wait for a writer
  EXPECT_EQ(identity::load(path).error().code, ec::bad_config);
  EXPECT_EQ(identity::load(folder).error().code, ec::bad_config);
}

} // namespace
} // namespace waggle
