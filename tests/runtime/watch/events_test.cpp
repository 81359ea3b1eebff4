#include "runtime/watch/events.hpp"

#include <limits>
#include <set>
#include <utility>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/watch/event_types.hpp"
#include "tests/support/ids.hpp"

namespace waggle::watch {
namespace {

using json = nlohmann::json;

json line(const event& what) {
  auto text = "{" + fields_of(what, id_of(1), swarm_time_from(1'700'000'000'123'456'789)) + "}";
  EXPECT_EQ(text.find('\n'), std::string::npos);
  return json::parse(text);
}

TEST(Events, ALineHasItsTimeItsTypeAndItsWriter) {
  auto made = line(stopping{"a signal"});
  EXPECT_EQ(made["t"], 1'700'000'000'123);
  EXPECT_EQ(made["type"], "stop");
  EXPECT_EQ(made["peer"], to_string(id_of(1)));
  EXPECT_EQ(made["reason"], "a signal");
}

template <std::size_t... I>
std::set<std::string> types_of_all_events(std::index_sequence<I...>) {
  state_moved sent;
  sent.sent = true;
  std::set<std::string> all{line(sent)["type"]};
  (all.insert(line(std::variant_alternative_t<I, event>{})["type"]), ...);
  for (auto i = 0; i <= static_cast<int>(remark::what::restart); ++i)
    all.insert(line(remark{remark::what(i), "x"})["type"]);
  return all;
}

TEST(Events, EachTypeHasARowInTheTableThatPagesGet) {
  auto all = types_of_all_events(std::make_index_sequence<std::variant_size_v<event>>{});
  for (const auto& name : all)
    EXPECT_NE(find_event_type(name), nullptr) << name;
  EXPECT_EQ(all.size(), event_types().size()) << "a row that no event has";
  EXPECT_EQ(json::parse(event_types_json()).size(), all.size());
}

TEST(Events, TextFromOthersStaysText) {
  auto made = line(peer_left{id_of(2), "</script>\"\\\x1b[31m\n\r\xff\xfe", 1});
  EXPECT_EQ(made["reason"], "</script>\"\\\x1b[31m\n\r\uFFFD\uFFFD");
  auto cut = line(peer_left{id_of(2), std::string(8192, '"'), 1});
  EXPECT_LE(cut["reason"].get<std::string>().size(), text_bytes_max + 3);
  auto amid = std::string(text_bytes_max - 1, 'x') + "é"; // the cut leaves half of it
  EXPECT_NO_THROW(line(peer_left{id_of(2), amid + amid, 1}));
}

TEST(Events, NumbersThatAreNotKnownAreAbsent) {
  epochs_ended ended{.loss = std::numeric_limits<double>::quiet_NaN(),
                     .duration_s = std::numeric_limits<double>::infinity()};
  auto made = line(ended);
  EXPECT_FALSE(made.contains("loss"));
  EXPECT_FALSE(made.contains("duration_s"));
  round_ended round;
  round.members.push_back({id_of(3)});
  made = line(round);
  EXPECT_FALSE(made["members"][0].contains("first_ms"));
  EXPECT_FALSE(made["members"][0].contains("rtt_ms"));
  EXPECT_FALSE(made.contains("reason"));
}

TEST(Events, ARoundNamesItsMembersAndTheirMarks) {
  round_ended round{.began = 7, .duration_ms = 12.34567};
  round_member m{id_of(3)};
  m.contributed = true;
  m.first_ms = 1.5;
  m.last_ms = 2;
  m.samples = 64;
  m.bytes_in = 9;
  round.members.push_back(m);
  auto made = line(round);
  EXPECT_EQ(made["type"], "round");
  EXPECT_EQ(made["duration_ms"], 12.346);
  EXPECT_EQ(made["members"][0]["peer"], to_string(id_of(3)));
  EXPECT_EQ(made["members"][0]["first_ms"], 1.5);
  EXPECT_EQ(made["members"][0]["samples"], 64);
  EXPECT_EQ(made["members"][0]["bytes_in"], 9);
  EXPECT_EQ(kind_of(event{round}), event_kind::round);
}

TEST(Events, ACheckpointIsRoutineUnlessItFails) {
  EXPECT_EQ(kind_of(event{checkpoint{1, 2, 3, "ok"}}), event_kind::checkpoint);
  EXPECT_EQ(kind_of(event{checkpoint{1, 2, 3, "io_error"}}), event_kind::other);
  EXPECT_EQ(kind_of(event{state_moved{true, {}, 1, 1, {}, "complete"}}), event_kind::routine);
  EXPECT_EQ(kind_of(event{peer_left{id_of(3), "silent", 1}}), event_kind::departure);
  EXPECT_EQ(kind_of(event{remark{remark::what::split, "x"}}), event_kind::other);
  EXPECT_FALSE(line(peer_left{id_of(3), "silent", 1}).contains("ordered"));
  EXPECT_EQ(line(peer_left{id_of(3), "goodbye", 1, true})["ordered"], true);
}

} // namespace
} // namespace waggle::watch
