// Files of a peer that other users could read, hold or replace, and what a killed peer left.

#include <array>

#include <openssl/ssl.h>
#include <sys/stat.h>

#include "tests/processes/peer.hpp"

namespace waggle::testing {
namespace {

namespace fs = std::filesystem;

struct Files : ::testing::Test {
  peer start(const std::string& run = "files") { return {folder, "a", {"node", "--run-id", run}}; }
  fs::path data() const { return folder.path() / "a"; }
  static unsigned mode_of(const fs::path& what) {
    struct stat found {};
    EXPECT_EQ(::stat(what.c_str(), &found), 0) << what;
    return found.st_mode & 07777U;
  }

  /// The SHA-256 of the certificate that browsers get there, as these show it.
  static std::string fingerprint_at(const endpoint& where) {
    std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context{SSL_CTX_new(TLS_client_method()),
                                                              SSL_CTX_free};
    std::unique_ptr<BIO, decltype(&BIO_free_all)> wire{BIO_new_ssl_connect(context.get()),
                                                       BIO_free_all};
    BIO_set_conn_hostname(wire.get(), to_string(where).c_str());
    SSL* ssl = nullptr;
    BIO_get_ssl(wire.get(), &ssl);
    if (BIO_do_handshake(wire.get()) != 1)
      return "no handshake";
    std::array<unsigned char, EVP_MAX_MD_SIZE> hash{};
    unsigned size = 0;
    X509_digest(SSL_get0_peer_certificate(ssl), EVP_sha256(), hash.data(), &size);
    std::array<char, 3 * EVP_MAX_MD_SIZE> text{};
    OPENSSL_buf2hexstr_ex(text.data(), text.size(), nullptr, hash.data(), size, ':');
    return text.data();
  }
  std::string id_prints() const {
    program id{folder, "id", {WAGGLE_PROGRAM, "id", "--data-dir", data().string()}};
    EXPECT_EQ(id.await_exit(), 0) << id.log();
    return id.log();
  }

  scratch_folder folder;
};

TEST_F(Files, OfThePagesCertificateIsTheOneThatBrowsersGetAndIdNames) {
  std::string first;
  for (int start_number = 0; start_number < 2; ++start_number) {
    auto a = start();
    auto where = a.await_address();
    auto shown = fingerprint_at(where);
    EXPECT_NE(id_prints().find("SHA-256 fingerprint " + shown), std::string::npos) << shown;
    EXPECT_EQ(mode_of(data() / "pages.pem"), 0600U);
    EXPECT_EQ(start_number == 0 ? shown : first, shown);
    first = shown;
    program status{folder, "status", {WAGGLE_PROGRAM, "status", "https://" + to_string(where)}};
    EXPECT_EQ(status.await_exit(), 0) << status.log();
    for (const std::string command : {"status", "health", "doctor", "plan --values 1e6"})
      for (const auto& expected : {shown, (shown.front() == 'A' ? "B" : "A") + shown.substr(1)}) {
        program asks{folder, "asks",
                     words(WAGGLE_PROGRAM " " + command + " " + to_string(where) + " --fingerprint "
                           + expected)};
        EXPECT_EQ(asks.await_exit() == 2, expected != shown) << command << "\n" << asks.log();
        auto names_it = "another fingerprint, " + shown;
        EXPECT_EQ(asks.log().find(names_it) == std::string::npos, expected == shown)
          << command << "\n"
          << asks.log();
      }
    a.signal(SIGTERM);
    EXPECT_EQ(a.await_exit(), 0) << a.log();
  }
}

TEST_F(Files, AnIdIsPrintedThoughTheCertificateIsOfNoUse) {
  fs::create_directories(data());
  std::ofstream{data() / "pages.pem"} << "nonsense";
  fs::permissions(data() / "pages.pem", fs::perms{0600});
  EXPECT_NE(id_prints().find("pages.pem"), std::string::npos);
  auto a = start();
  EXPECT_EQ(a.await_exit(), 2);
  EXPECT_NE(a.log().find("pages.pem"), std::string::npos) << a.log();
}

TEST_F(Files, OfAPeerAreItsOwn) {
  auto a = start();
  (void)a.await_address();
  EXPECT_EQ(mode_of(data() / "identity.pem"), 0600U);
  EXPECT_EQ(mode_of(data() / "lock"), 0600U);
  EXPECT_EQ(mode_of(data()) & 022U, 0U);
  a.signal(SIGTERM);
  EXPECT_EQ(a.await_exit(), 0) << a.log();
}

TEST_F(Files, AKeyThatOthersCanReadEndsTheStartWithOneSentence) {
  {
    auto a = start();
    (void)a.await_address();
    a.signal(SIGTERM);
    ASSERT_EQ(a.await_exit(), 0) << a.log();
  }
  fs::permissions(data() / "identity.pem", fs::perms{0644});
  auto a = start();
  EXPECT_EQ(a.await_exit(), 2);
  EXPECT_NE(a.log().find("chmod 600"), std::string::npos) << a.log();
}

TEST_F(Files, ThatWereLeftHalfWrittenAreRemovedAndAnOpenFolderIsNamed) {
  fs::create_directories(data());
  std::ofstream{data() / "known_peers.new"} << "half";
  std::ofstream{data() / "temporary-aB3dE6"} << "half";
  fs::permissions(data(), fs::perms{0777});
  auto a = start();
  (void)a.await_address();
  EXPECT_FALSE(fs::exists(data() / "known_peers.new"));
  EXPECT_FALSE(fs::exists(data() / "temporary-aB3dE6"));
  EXPECT_NE(a.log().find("chmod go-w"), std::string::npos) << a.log();
}

/// Whoever knows the name may join.
TEST_F(Files, AndTheNameOfTheRunAreNotForStrangers) {
  auto a = start("a-secret-name");
  auto where = a.await_address();
  peer stranger{folder, "b", {"node", "--run-id", "guess", "--initial-peers", to_string(where)}};
  constexpr auto what_to_check =
    "this peer belongs to another run: the run's name must be the same on all peers";
  ASSERT_TRUE(eventually([&] { return stranger.log().find(what_to_check) != std::string::npos; }))
    << stranger.log();
  EXPECT_EQ(stranger.log().find("a-secret-name"), std::string::npos);
}

} // namespace
} // namespace waggle::testing
