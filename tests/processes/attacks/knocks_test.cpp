// A run with a key and a list of members, and clients that have to stay outside: each is refused
// with a reason, counted and survived, and learns nothing of the run.

#include <gmock/gmock.h>

#include "runtime/crypto/swarm_key.hpp"
#include "tests/processes/attacks/attacks.hpp"
#include "tests/processes/peer.hpp"

namespace waggle::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::uint64_t removed = 7; // seeds of identities
constexpr std::uint64_t visitor = 9;

class Knocks : public ::testing::Test {
protected:
  void SetUp() override {
    ASSERT_TRUE(save_swarm_key(key, folder.path() / "key"));
    for (const auto* name : {"ann", "bob"})
      members.push_back(
        {(*identity::load_or_create(folder.path() / name / "identity.pem"))->id(), never});
    members.push_back({identity::from_seed(visitor)->id(), never});
    ann = start("ann", "127.0.0.1", {"--members-list", write("now.list", list(2))});
    at.where = ann->await_address();
    bob = start("bob", "127.0.0.77", {"--initial-peers", to_string(at.where)});
    ASSERT_TRUE(eventually([&] { return rounds() > 0; })) << ann->log();
    at.run = inline_text(key);
    members.push_back({identity::from_seed(removed)->id(), never});
    at.list = list(1);
  }
  void TearDown() override {
    auto before = rounds();
    EXPECT_TRUE(eventually([&] { return rounds() > before + 2; })) << "the run goes on";
    EXPECT_EQ(kept(), content_of(folder.path() / "now.list"));
  }

  std::string list(std::uint64_t version) {
    return member_list::sign(*authority, version, members)->bytes();
  }
  std::string write(const std::string& name, const std::string& text) {
    std::ofstream{folder.path() / name} << text;
    return (folder.path() / name).string();
  }
  std::unique_ptr<peer> start(const std::string& name, const std::string& host,
                              const std::vector<std::string>& more) {
    auto all =
      words("average --elements 1009 --run-id " + label + " --listen " + host + ":0 --swarm-key "
              + (folder.path() / "key").string() + " --members " + to_string(authority->key()),
            more);
    return std::make_unique<peer>(folder, name, all);
  }
  std::size_t rounds() const {
    auto all = ann->rounds();
    return static_cast<std::size_t>(
      std::ranges::count_if(all, [](const auto& r) { return r["contributors"].size() == 2; }));
  }
  std::string kept() const { return content_of(folder.path() / "ann" / "members.list"); }
  double refused(ec why) {
    return metric(at.where, "waggle_network_refused_total",
                  "reason=\"" + std::string{to_string(why)} + "\"");
  }
  /// Neither label nor key, nor who else is there.
  void expect_nothing_of_the_run(const std::string& shown) {
    for (const auto& secret : {label, std::string{"127.0.0.77"}, std::string{key.raw()},
                               std::string{members[1].id.raw()}, to_string(members[1].id)})
      EXPECT_THAT(shown, Not(HasSubstr(secret)));
  }

  const swarm_time never = *end_of_day("2199-12-31");
  const std::string label = "label-of-the-birds";
  const swarm_key key = make_swarm_key();
  const std::shared_ptr<const identity> authority = identity::generate();
  scratch_folder folder;
  std::vector<member_list::member> members;
  std::unique_ptr<peer> ann, bob;
  attacks::target at;
};

TEST_F(Knocks, AreRefusedWithAReasonCountedAndSurvived) {
  at.seed = removed;
  for (const auto& each : attacks::knocks()) {
    SCOPED_TRACE(each.name);
    auto before = refused(each.refusal);
    auto shown = each.play(at);
    EXPECT_TRUE(eventually([&] { return refused(each.refusal) > before; }));
    EXPECT_TRUE(shown.refusal == each.refusal || shown.refusal == ec::none)
      << to_string(shown.refusal);
    // Who shows the key belongs to those that may know.
    if (each.refusal == ec::wrong_run || shown.refusal == ec::none) {
      expect_nothing_of_the_run(shown.bytes);
      EXPECT_THAT(shown.bytes, Not(HasSubstr("elements"))) << "an option";
    }
  }
  auto pages = net::http_get(at.where, "/metrics", 5s);
  expect_nothing_of_the_run(pages->body); // which strangers may read
}

TEST_F(Knocks, OfAMemberBringNoListThatIsOldOrForgedAndNoThirdHost) {
  auto honest = [&](const attacks::list_story& theirs) { return theirs; };
  for (bool encrypts : {false, true}) {
    attacks::stranger who{at.where, at.run, visitor};
    if (encrypts)
      who.encrypt();
    who.tell(honest);
    EXPECT_TRUE(who.join()) << who.why();
  }
  attacks::stranger replays{at.where, at.run, visitor};
  replays.tell([&](const attacks::list_story& theirs) {
    return attacks::list_story{theirs.authority, {theirs.rank.version + 1, {}}, at.list};
  });
  ASSERT_TRUE(replays.join()) << "it is a member: " << replays.why();
  replays.send(wire::event{wire::members_note{at.list}});
  EXPECT_TRUE(replays.ping()) << "what is old is no offence";

  auto notes = refused(ec::protocol_violation);
  endpoint third{"127.0.0.99", 7700};
  replays.send(wire::event{wire::punch_note{identity::from_seed(77)->id(), third, 0}});
  EXPECT_TRUE(eventually([&] { return refused(ec::protocol_violation) > notes; }))
    << "only a peer that it has dialled itself brings it together with others";

  auto before = refused(ec::bad_signature);
  replays.send(wire::event{wire::members_note{
    attacks::made_list(authority->key(), 3, never, {members.front()}, replays.self())}});
  EXPECT_TRUE(eventually([&] { return !replays.drain(); })) << "what is forged ends the link";
  EXPECT_GT(refused(ec::bad_signature), before);
}

} // namespace
} // namespace waggle::testing
