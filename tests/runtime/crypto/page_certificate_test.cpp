#include "runtime/crypto/page_certificate.hpp"

#include <fstream>

#include <gtest/gtest.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include "tests/support/own_certificate.hpp"
#include "tests/support/scratch_folder.hpp"

namespace waggle {
namespace {

namespace fs = std::filesystem;

struct PageCertificate : ::testing::Test {
  static result<std::shared_ptr<const page_certificate>> write_to(const fs::path& path,
                                                                  const std::string& pem) {
    std::ofstream{path} << pem;
    fs::permissions(path, fs::perms{0600});
    return page_certificate::load(path);
  }

  testing::scratch_folder scratch;
  const fs::path& folder = scratch.path();
};

TEST_F(PageCertificate, IsSavedForItsOwnerOnlyAndKept) {
  auto path = folder / "deep" / page_certificate_file;
  auto first = page_certificate::load_or_create(path);
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
  EXPECT_EQ(std::distance(fs::directory_iterator{path.parent_path()}, fs::directory_iterator{}), 1);
  auto again = page_certificate::load_or_create(path);
  EXPECT_EQ((*again)->fingerprint(), (*first)->fingerprint());
  EXPECT_EQ((*first)->fingerprint().size(), 32U * 3 - 1);
  EXPECT_NE(page_certificate::make()->fingerprint(), (*first)->fingerprint());
}

TEST_F(PageCertificate, SignsItselfForTheNameWaggle) {
  auto made = page_certificate::make();
  auto* c = made->certificate();
  EXPECT_EQ(X509_verify(c, made->pair()), 1);
  EXPECT_EQ(ASN1_STRING_type(X509_get0_notBefore(c)), V_ASN1_UTCTIME) << "RFC 5280, 4.1.2.5";
  EXPECT_EQ(ASN1_STRING_type(X509_get0_notAfter(c)), V_ASN1_GENERALIZEDTIME);
  EXPECT_EQ(X509_check_host(c, "waggle", 0, 0, nullptr), 1);
  EXPECT_EQ(X509_check_host(c, "elsewhere", 0, 0, nullptr), 0);
  auto other = page_certificate::make();
  EXPECT_NE(
    ASN1_INTEGER_cmp(X509_get0_serialNumber(c), X509_get0_serialNumber(other->certificate())), 0);
}

TEST_F(PageCertificate, WhatIsNoneIsRefusedWithASentenceAndStays) {
  auto path = folder / page_certificate_file;
  auto good = folder / "good.pem";
  ASSERT_TRUE(page_certificate::load_or_create(good).ok());
  std::string text;
  std::getline(std::ifstream{good}, text, '\0');
  auto certificate = text.substr(text.find("-----BEGIN CERTIFICATE"));
  auto other = folder / "other.pem";
  ASSERT_TRUE(page_certificate::load_or_create(other).ok());
  std::string foreign;
  std::getline(std::ifstream{other}, foreign, '\0');
  auto key = foreign.substr(0, foreign.find("-----BEGIN CERTIFICATE"));
  for (const auto& content : {std::string{}, std::string{"nonsense"}, certificate, key,
                              key + certificate, text.substr(0, text.size() / 2)}) {
    std::ofstream{path} << content;
    fs::permissions(path, fs::perms{0600});
    auto outcome = page_certificate::load_or_create(path);
    ASSERT_FALSE(outcome.ok()) << content;
    EXPECT_EQ(outcome.error().code, ec::bad_config);
    EXPECT_NE(outcome.error().detail.find(path.string()), std::string::npos);
    EXPECT_EQ(fs::file_size(path), content.size());
  }
  EXPECT_TRUE(write_to(path, text + certificate).ok()) << "more certificates";
  fs::permissions(good, fs::perms{0644});
  EXPECT_NE(page_certificate::load(good).error().detail.find("chmod 600"), std::string::npos);
  EXPECT_EQ(page_certificate::load(folder).error().code, ec::bad_config);
  EXPECT_EQ(page_certificate::load(folder / "missing").error().code, ec::io_error);
}

TEST_F(PageCertificate, OfAnOperatorIsOfAKindThatTlsTakes) {
  auto path = folder / page_certificate_file;
  using testing::own_certificate;
  for (const auto* kind : {"P-256", "P-384", "ED25519", "2048"})
    EXPECT_TRUE(write_to(path, own_certificate(kind)).ok()) << kind;
  for (const auto* kind : {"1024", "5120", "P-521", "secp256k1", "ED448"}) {
    auto outcome = write_to(path, own_certificate(kind));
    ASSERT_FALSE(outcome.ok()) << kind;
    EXPECT_EQ(outcome.error().code, ec::bad_config) << kind;
    EXPECT_NE(outcome.error().detail.find(path.string()), std::string::npos);
  }
  EXPECT_FALSE(write_to(path, own_certificate("P-256", EVP_md5())).ok());
}

TEST_F(PageCertificate, KeepsWhoSignsIt) {
  auto path = folder / page_certificate_file;
  auto signer = testing::own_certificate("P-384");
  signer = signer.substr(signer.find("-----BEGIN CERTIFICATE"));
  auto alone = write_to(path, testing::own_certificate("P-256"));
  EXPECT_EQ(sk_X509_num((*alone)->chain()), 0);
  auto both = write_to(path, testing::own_certificate("P-256") + signer);
  EXPECT_EQ(sk_X509_num((*both)->chain()), 1);
  auto half = write_to(path, testing::own_certificate("P-256") + signer.substr(0, 200));
  EXPECT_FALSE(half.ok());
}

} // namespace
} // namespace waggle
