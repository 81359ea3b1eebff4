// A signed list says who belongs to a run: real peers that are on it, are added while they knock,
// are removed, or whose time on it ends; lists that are old, or of one version.

#include "runtime/crypto/digest.hpp"
#include "runtime/crypto/member_list.hpp"
#include "tests/processes/peer.hpp"

namespace waggle::testing {
namespace {

namespace fs = std::filesystem;

class MembersOfARun : public ::testing::Test {
protected:
  /// Runs the program to its end; its output.
  std::string run(const std::string& line, int code = 0) {
    auto command = words(line);
    command.insert(command.begin(), WAGGLE_PROGRAM);
    program once{folder, "command" + std::to_string(++commands_), command};
    EXPECT_EQ(once.await_exit(60s), code) << line << "\n" << once.log();
    return once.log();
  }
  /// Makes the identity of a peer that is started later.
  std::string id_of(const std::string& name) {
    return run("id --data-dir " + path(name)).substr(0, 64);
  }
  std::string path(const std::string& name) const { return (folder.path() / name).string(); }
  /// A change of the list, or `show`.
  std::string members(const std::string& what, int code = 0) {
    return run("members " + what + " --key " + path("auth.pem") + " --members-list "
                 + path("members.list"),
               code);
  }
  std::string add(const std::string& ids) { return members("add " + ids + " --until 2199-12-31"); }
  void push(const peer& to, const std::string& list, int code = 0) {
    said_ = run("members push " + to_string(*to.address()) + " --run-id listed --members-list "
                  + path(list),
                code);
  }
  std::unique_ptr<peer> start(const std::string& name, const std::vector<std::string>& more) {
    auto all = words("average --run-id listed --elements 1000 --members " + authority(), more);
    return std::make_unique<peer>(folder, name, all);
  }
  std::string authority() const {
    return to_string(member_list::parse(content_of(path("members.list")))->authority());
  }
  /// Rounds with so many contributors.
  static std::size_t rounds_of(const peer& who, std::size_t contributors) {
    auto all = who.rounds();
    return static_cast<std::size_t>(std::ranges::count_if(
      all, [&](const auto& r) { return r["contributors"].size() == contributors; }));
  }
  static bool says(const peer& who, const std::string& text) {
    return eventually([&] { return who.log().find(text) != std::string::npos; });
  }
  bool keeps(const std::string& name, const std::string& list) const {
    auto kept = folder.path() / name / "members.list";
    return eventually([&] { return content_of(kept) == list; });
  }

  scratch_folder folder;
  std::string said_; // by the last push

private:
  int commands_ = 0;
};

TEST_F(MembersOfARun, OnlyThoseOnTheListTrainAndItChangesWhileTheyRun) {
  auto ann_id = id_of("ann");
  auto bob_id = id_of("bob");
  auto cid_id = id_of("cid");
  add(ann_id + " " + bob_id);
  auto first_list = content_of(path("members.list"));
  fs::copy_file(path("members.list"), path("old.list"));
  auto ann = start("ann", {"--members-list", path("members.list")});
  auto where = to_string(ann->await_address());
  auto bob = start("bob", {"--initial-peers", where}); // has no list
  auto cid = start("cid", {"--initial-peers", where});
  EXPECT_TRUE(eventually([&] { return rounds_of(*bob, 2) > 0; })) << bob->log();
  EXPECT_TRUE(says(*cid, "send its id, " + cid_id)) << cid->log();
  EXPECT_TRUE(keeps("bob", first_list));
  EXPECT_EQ(rounds_of(*ann, 3), 0U);

  add(cid_id);
  push(*ann, "members.list");
  EXPECT_TRUE(eventually([&] { return rounds_of(*cid, 3) > 0; })) << cid->log();
  EXPECT_TRUE(keeps("bob", content_of(path("members.list")))) << "it is passed on";

  members("remove " + bob_id);
  push(*cid, "members.list");
  EXPECT_TRUE(says(*bob, "this peer is not on the run's list of members (version 3)"))
    << bob->log();
  EXPECT_TRUE(says(*ann, "is not on the list of members (version 3)")) << ann->log();
  auto before = rounds_of(*ann, 2);
  EXPECT_TRUE(eventually([&] { return rounds_of(*ann, 2) > before + 2; })) << ann->log();
  EXPECT_TRUE(bob->runs()) << "it may be added again";

  push(*ann, "old.list", 2);
  EXPECT_NE(said_.find("has a newer list, version 3"), std::string::npos) << said_;
  cid->signal(SIGTERM);
  EXPECT_EQ(cid->await_exit(), 0);
  cid = start("cid", {"--initial-peers", where, "--members-list", path("old.list")});
  EXPECT_TRUE(says(*cid, "has a newer list of members than this peer was given")) << cid->log();
}

TEST_F(MembersOfARun, OfTwoListsOfOneVersionAllKeepTheSameAndItsEndIsKept) {
  auto ann_id = id_of("ann");
  auto bob_id = id_of("bob");
  add(ann_id + " " + bob_id);
  fs::copy_file(path("members.list"), path("base.list"));
  auto ann = start("ann", {"--members-list", path("members.list")});
  auto bob = start("bob", {"--initial-peers", to_string(ann->await_address())});
  ASSERT_TRUE(eventually([&] { return rounds_of(*bob, 2) > 0; })) << bob->log();

  add(std::string(64, 'a'));
  fs::rename(path("members.list"), path("one.list"));
  fs::rename(path("base.list"), path("members.list"));
  add(std::string(64, 'b'));
  push(*ann, "one.list");
  auto one = content_of(path("one.list"));
  EXPECT_TRUE(keeps("bob", one));
  auto other = content_of(path("members.list"));
  bool first_stays = sha256(one) < sha256(other);
  push(*bob, "members.list", first_stays ? 2 : 0);
  for (const auto* name : {"ann", "bob"})
    EXPECT_TRUE(keeps(name, first_stays ? one : other)) << name;

  auto now = system_wall_clock{}.now();
  auto key = identity::load(path("auth.pem"));
  auto until = now + 2s; // and never again
  auto ending = member_list::sign(
    **key, 3, {{*peer_id::parse(ann_id), now + 1h}, {*peer_id::parse(bob_id), until}});
  std::ofstream{path("ending.list")} << ending->bytes();
  push(*ann, "ending.list");
  EXPECT_TRUE(says(*bob, "its time on it ended on")) << bob->log();
}

TEST_F(MembersOfARun, BadInputIsASentenceAndNothingIsWritten) {
  auto id = id_of("ann");
  auto refused = [&](const std::string& what, const std::string& sentence) {
    auto text = members(what, 2);
    EXPECT_NE(text.find(sentence), std::string::npos) << what << ": " << text;
  };
  refused("add " + id + " --until 2001-01-01", "is in the past");
  refused("add xyz --until 2199-01-01", "is no peer's id");
  refused("add " + id, "say until when");
  refused("add --until 2199-01-01", "name at least one peer");
  refused("show", "there is no list");
  EXPECT_FALSE(fs::exists(path("members.list")));
  EXPECT_FALSE(fs::exists(path("auth.pem")));
  add(id);
  refused("remove " + std::string(64, 'a'), "is not on the list");
  auto list = content_of(path("members.list"));
  fs::rename(path("auth.pem"), path("mine.pem"));
  refused("add " + id + " --until 2199-01-01", "is signed already");
  EXPECT_EQ(content_of(path("members.list")), list);
  auto of_peer = [&](const std::string& options, const std::string& sentence) {
    auto text = run("node --data-dir " + path("bob") + " " + options, 2);
    EXPECT_NE(text.find(sentence), std::string::npos) << text;
  };
  of_peer("--members " + path("mine.pem"), "is a private key");
  of_peer("--members abc", "is no public key");
  of_peer("--members-list " + path("members.list"), "needs --members KEY");
  of_peer("--trust-members true", "needs --members KEY");
  of_peer("--members " + std::string(64, 'a') + " --members-list " + path("members.list"),
          "a list of another authority");
  // Another authority is another run.
  peer ann{folder, "ann", words("node --run-id listed --members " + authority())};
  auto where = to_string(ann.await_address());
  auto other = run("node --run-id listed --listen 127.0.0.1:0 --members " + std::string(64, 'a')
                     + " --initial-peers " + where + " --data-dir " + path("bob"),
                   2);
  EXPECT_NE(other.find("two authorities are two runs"), std::string::npos) << other;
  EXPECT_TRUE(says(ann, "two authorities are two runs")) << ann.log();
  push(ann, "members.list");
  EXPECT_TRUE(keeps("ann", list)) << "a peer without a list takes one";
}

} // namespace
} // namespace waggle::testing
