#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/crypto/identity.hpp"
#include "runtime/status/status_documents.hpp"

namespace waggle {
namespace {

peer_record peer(std::uint64_t seed, bool client = false) {
  auto who = identity::from_seed(seed);
  peer_record record{who->id(), who->key(), {{"10.0.0." + std::to_string(seed), 7700}}, client};
  if (client)
    record.addresses.clear();
  return record;
}

TEST(Targets, AreThePeersThatAnswerAndThoseThatWereLost) {
  peer_picture picture;
  picture.training.emplace();
  picture.role = "trainer";
  for (auto seed : {1, 2, 3}) {
    swarm_progress::peer each;
    each.who = peer(static_cast<std::uint64_t>(seed), seed == 3);
    picture.run.peers.push_back(each);
  }
  picture.present[peer(2).id] = {{}, peer(2).addresses};
  picture.present[peer(4).id] = {{}, peer(4).addresses}; // a node, which reports nothing
  picture.left.push_back({peer(5).id, "silent", "timeout", {}, {}, peer(5).addresses, true});
  picture.left.push_back(
    {peer(6).id, "goodbye", "shutting_down", {}, {}, peer(6).addresses, false});
  auto all = nlohmann::json::parse(targets_document(picture, peer(1), "run-1a2b3c4d"));
  std::map<std::string, std::string> roles;
  for (const auto& each : all) {
    roles[each["targets"][0]] = each["labels"]["role"];
    EXPECT_EQ(each["labels"]["run"], "run-1a2b3c4d");
  }
  EXPECT_EQ(all[0]["labels"]["peer"], short_name(peer(1).id));
  EXPECT_EQ(roles, (std::map<std::string, std::string>{{"10.0.0.1:7700", "trainer"},
                                                       {"10.0.0.2:7700", "trainer"},
                                                       {"10.0.0.4:7700", "node"},
                                                       {"10.0.0.5:7700", "lost"}}))
    << "a client has no address, and who says goodbye is not missed";
}

} // namespace
} // namespace waggle
