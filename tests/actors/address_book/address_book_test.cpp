#include "actors/links/address_book.hpp"

#include <gmock/gmock.h>

#include "tests/support/actor_test.hpp"
#include "tests/support/memory_disk.hpp"

namespace waggle::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Counts writes.
class counting_disk final : public disk {
public:
  result<std::string> read(const std::filesystem::path& file, std::uint64_t bytes_max) override {
    return files.read(file, bytes_max);
  }
  result<std::string> read_begin(const std::filesystem::path& file, std::size_t bytes) override {
    return files.read_begin(file, bytes);
  }
  status write(const std::filesystem::path& file,
               std::initializer_list<byte_span> pieces) override {
    ++writes;
    return files.write(file, pieces);
  }
  status write_from(const std::filesystem::path& file, const byte_source& content) override {
    ++writes;
    return files.write_from(file, content);
  }
  status append(const std::filesystem::path& file, byte_span bytes) override {
    ++writes;
    return files.append(file, bytes);
  }
  result<std::shared_ptr<byte_store>> make_store(const std::filesystem::path& folder) override {
    return files.make_store(folder);
  }
  result<std::vector<std::string>> list(const std::filesystem::path& folder) override {
    return files.list(folder);
  }
  status remove(const std::filesystem::path& file) override { return files.remove(file); }

  memory_disk files;
  int writes = 0;
};

class AddressBook : public actor_test {
protected:
  ~AddressBook() override { end_actors(); }
  void SetUp() override { start(); }

  void start() {
    book = spawn<address_book>(ctx, with, files, load_known_peers(*files, with.file, ctx));
  }
  void connect(std::uint64_t seed) { tell(book, peer_connected{test_peer(seed)}); }
  void disconnect(std::uint64_t seed) {
    tell(book, peer_disconnected{test_peer(seed).id, {ec::peer_lost, {}}});
  }
  /// The peers that the next run would load, newest first.
  std::vector<peer_id> kept() {
    std::vector<peer_id> ids;
    auto known = load_known_peers(*files, with.file, ctx);
    for (const auto& peer : known.newest_first())
      ids.push_back(peer.id);
    return ids;
  }

  std::shared_ptr<counting_disk> files = std::make_shared<counting_disk>();
  address_book_config with{"data/known_peers", 5s};
  node_context ctx = test_context(1, wall);
  link_listener_actor book;
};

TEST_F(AddressBook, KeepsWhomItWasConnectedWithLast) {
  connect(2);
  connect(3);
  pass(5s);
  EXPECT_THAT(kept(), ElementsAre(test_peer(3).id, test_peer(2).id));
  disconnect(2); // it was connected until now
  pass(5s);
  EXPECT_THAT(kept(), ElementsAre(test_peer(2).id, test_peer(3).id));
}

TEST_F(AddressBook, WritesTheFirstPeerAtOnce) {
  connect(2);
  EXPECT_THAT(kept(), ElementsAre(test_peer(2).id)) << "a kill may come at any moment";
  pass(60s);
  EXPECT_EQ(files->writes, 1);
}

TEST_F(AddressBook, WritesOnceHoweverManyComeAndGo) {
  connect(12);
  files->writes = 0;
  for (std::uint64_t seed = 2; seed < 12; ++seed)
    connect(seed);
  pass(4999ms);
  EXPECT_EQ(files->writes, 0);
  pass(1ms);
  EXPECT_EQ(files->writes, 1);
  pass(60s);
  EXPECT_EQ(files->writes, 1);
}

TEST_F(AddressBook, WritesAtItsEndWhatIsNew) {
  connect(2);
  caf::anon_send_exit(book, caf::exit_reason::user_shutdown);
  settle();
  EXPECT_THAT(kept(), ElementsAre(test_peer(2).id));
}

TEST_F(AddressBook, GoesOnWhereTheLastLifeEnded) {
  connect(2);
  pass(5s);
  start();
  connect(3);
  pass(5s);
  EXPECT_THAT(kept(), ElementsAre(test_peer(3).id, test_peer(2).id));
}

TEST_F(AddressBook, ClientsAndStrangersAreNotKept) {
  auto client = test_peer(2);
  client.addresses.clear();
  tell(book, peer_connected{client});
  disconnect(3);
  pass(5s);
  EXPECT_EQ(files->writes, 0);
}

TEST_F(AddressBook, ADamagedFileIsNobody) {
  files->files.corrupt(with.file, "noise");
  EXPECT_THAT(kept(), IsEmpty());
  files->files.corrupt(with.file, std::string(10'000'000, 'x'));
  EXPECT_THAT(kept(), IsEmpty());
}

TEST_F(AddressBook, ADiskThatFailsIsTriedAgain) {
  files->files.fail_writes(failure{ec::io_error, "the disk is full"});
  connect(2);
  pass(5s);
  EXPECT_THAT(kept(), IsEmpty());
  files->files.fail_writes(std::nullopt);
  pass(5s);
  EXPECT_THAT(kept(), ElementsAre(test_peer(2).id));
}

} // namespace
} // namespace waggle::testing
