// Attacks pace themselves by the clock: what they sleep is part of their rate, and ends at a
// deadline. No test depends on how long it is.

#include "tests/processes/attacks/attacks.hpp"

#include <algorithm>
#include <map>
#include <thread>

#include "runtime/dht/record.hpp"
#include "runtime/progress/progress_ledger.hpp"
#include "runtime/wire/convert.hpp"

namespace waggle::attacks {

namespace {

using clock = std::chrono::steady_clock;

swarm_time wall_now() {
  return system_wall_clock{}.now();
}

/// Returns true until the time is over, at most as often as the rate permits.
class pace {
public:
  explicit pace(const target& at)
    : until_(clock::now() + at.duration), rate_(at.bytes_per_second) {}

  [[nodiscard]] bool goes_on(std::uint64_t bytes_sent) const {
    for (;;) {
      auto now = clock::now();
      if (now >= until_)
        return false;
      if (static_cast<double>(bytes_sent) <= rate_ * seconds_of(now - began_))
        return true;
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
  }

private:
  clock::time_point began_ = clock::now();
  clock::time_point until_;
  double rate_;
};

/// What one identity sends at a time. False: the link has ended.
using burst = std::function<bool(stranger&, random_source&)>;

/// What a flood does besides.
struct manner {
  bool again = false; // a new identity after each burst, not only when a link has ended
  bool reads = true;  // what the peer sends
};

outcome flood(const target& at, const burst& send, manner how = {}) {
  outcome out;
  pace paced{at};
  random_source random{entropy_seed()};
  std::vector<stranger> all;
  auto fresh = [&] { return stranger{at.where, at.run, random.next() | 1U}; };
  for (std::size_t i = 0; i < at.links; ++i)
    all.push_back(fresh());
  for (std::size_t i = 0; paced.goes_on(out.bytes_sent); i = (i + 1) % all.size()) {
    auto& who = all[i];
    auto before = who.bytes_sent();
    if ((!who.joined() && !who.join()) || !send(who, random)) {
      ++out.refused;
      out.bytes_sent += who.bytes_sent() - before;
      who = fresh();
      if (paced.goes_on(out.bytes_sent))
        std::this_thread::sleep_for(std::chrono::milliseconds{5});
      continue;
    }
    ++out.messages;
    out.bytes_sent += who.bytes_sent() - before;
    bool open = how.reads ? who.drain() : who.joined();
    out.refused += open ? 0 : 1;
    if (how.again || !open)
      who = fresh();
  }
  return out;
}

round_id random_round(random_source& random) {
  round_id id;
  random.fill(id.bytes);
  return id;
}

constexpr std::size_t record_bytes = 2'000; // of a value; a later version may have as many

/// As large as a report can be, and newer than the one before.
progress_report report_of(const stranger& who) {
  progress_report report;
  report.who.id = who.self().id();
  report.who.key = who.self().key();
  report.who.addresses.assign(addresses_max, {std::string(200, 'v') + ".invalid", 7700});
  report.epoch = epoch_id{1};
  report.samples = 1;
  report.samples_per_second = 1;
  report.time = wall_now();
  report.claim.group_size = 2;
  report.claim.ready = true;
  return report;
}

record progress_record(const stranger& who, std::string name, bool genuine) {
  record entry{.kind = record_kind::progress,
               .name = std::move(name),
               .value = encode_progress(report_of(who))};
  entry.value.resize(record_bytes, 'v');
  entry.expiration = wall_now() + 300s;
  entry.sequence = static_cast<std::uint64_t>(to_nanoseconds(wall_now()));
  sign_record(who.run(), who.self(), entry);
  if (!genuine)
    entry.value.back() = 'w';
  return entry;
}

bool push_report(stranger& who, bool genuine) {
  return who.send(wire::event{wire::progress_push{progress_record(who, "progress", genuine)}});
}

bool store(stranger& who, random_source& random, record entry) {
  return who.send(wire::call{random.next(), 1'000, wire::dht_store{{std::move(entry)}}});
}

outcome hold(const target& at, const std::string& first) {
  outcome out;
  pace paced{at};
  std::vector<raw_socket> all;
  while (paced.goes_on(0)) {
    std::erase_if(all, [&](const raw_socket& socket) {
      bool gone = !socket.connected() || !socket.drain();
      out.refused += gone ? 1 : 0;
      return gone;
    });
    if (all.size() < at.links) {
      all.emplace_back(at.where);
      ++out.messages;
      if (all.back().connected() && !first.empty())
        all.back().send(first);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds{20});
    }
  }
  return out;
}

} // namespace

outcome flood_unknown_rounds(const target& at) {
  return flood(at, [](stranger& who, random_source& random) {
    wire::part part{.round = random_round(random), .count = 64 * 1024, .weight = 1};
    return who.send(wire::event{part}, 4 * part.count);
  });
}

outcome flood_round_messages(const target& at) {
  return flood(at, [](stranger& who, random_source& random) {
    bool open = true;
    for (int i = 0; i < 100 && open; ++i)
      open = who.send(wire::event{wire::round_prepared{random_round(random), 1, {}, {}}});
    return open;
  });
}

outcome flood_open_records(const target& at) {
  return flood(at, [](stranger& who, random_source& random) {
    record entry{.name = "flood-" + std::to_string(random.next()),
                 .value = std::string(60'000, 'x'),
                 .expiration = wall_now() + std::chrono::hours{23}};
    return store(who, random, std::move(entry));
  });
}

outcome flood_made_up_records(const target& at) {
  auto send = [](stranger& who, random_source& random) {
    return store(who, random, progress_record(who, "progress", true))
           && store(who, random,
                    progress_record(who, "flood-" + std::to_string(random.next()), true))
           && who.ping().has_value();
  };
  return flood(at, send, {.again = true});
}

outcome flood_small_records(const target& at) {
  auto send = [](stranger& who, random_source& random) {
    wire::dht_store some;
    for (auto kind : {record_kind::progress, record_kind::group_member})
      for (int i = 0; i < 16; ++i) {
        record entry{
          .kind = kind, .name = std::to_string(random.next()), .expiration = wall_now() + 60s};
        sign_record(who.run(), who.self(), entry);
        some.records.push_back(std::move(entry));
      }
    return who.send(wire::call{random.next(), 1'000, std::move(some)}) && who.ping().has_value();
  };
  return flood(at, send, {.again = true});
}

outcome flood_forged_records(const target& at) {
  return flood(at, [](stranger& who, random_source& random) {
    return store(who, random, progress_record(who, "progress", false));
  });
}

outcome flood_forged_progress(const target& at) {
  return flood(at, [](stranger& who, random_source&) { return push_report(who, false); });
}

outcome flood_signed_progress(const target& at) {
  return flood(at, [](stranger& who, random_source&) { return push_report(who, true); });
}

outcome flood_notes(const target& at) {
  std::map<peer_id, std::uint64_t> told; // samples that each has reported
  return flood(at, [&told](stranger& who, random_source&) {
    // A note counts if it follows a report of the same history and is ahead of it.
    auto [known, is_new] = told.try_emplace(who.self().id(), report_of(who).samples);
    bool open = !is_new || push_report(who, true);
    wire::progress_note note{.epoch = report_of(who).epoch};
    for (int i = 0; i < 100 && open; ++i) {
      note.samples = ++known->second;
      open = who.send(wire::event{note});
    }
    return open;
  });
}

namespace {

bool ask_for_much(stranger& who, random_source& random) {
  wire::dht_find find;
  auto key = record_key(who.run(), record_kind::progress, "progress");
  find.keys.assign(wire::keys_per_find_max, key);
  return who.send(wire::call{random.next(), 1'000, std::move(find)});
}

} // namespace

outcome flood_finds(const target& at) {
  return flood(at, ask_for_much);
}

outcome flood_unread_answers(const target& at) {
  return flood(at, ask_for_much, {.reads = false});
}

outcome flood_unread_pieces(const target& at) {
  digest state;
  return flood(at, [&state](stranger& who, random_source& random) {
    if (state.is_zero()) {
      auto answer = who.ask(wire::open_state{});
      const auto* header = answer ? std::get_if<wire::state_header>(&*answer) : nullptr;
      if (header == nullptr)
        return false;
      state = header->content;
    }
    bool open = true; // what is read is not granted again, so most of it waits at the other end
    for (int i = 0; i < 16 && open; ++i)
      open = who.send(wire::call{random.next(), 60'000, wire::get_state_chunk{state, 0}});
    return open;
  });
}

outcome flood_handshakes(const target& at) {
  return flood(at, [](stranger&, random_source&) { return true; }, {.again = true});
}

outcome flood_pages(const target& at) {
  outcome out;
  pace paced{at};
  while (paced.goes_on(out.bytes_sent)) {
    raw_socket socket{at.where};
    std::string request = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    if (!socket.connected() || !socket.send(request)
        || !socket.receive_all().starts_with("HTTP/1.1 200"))
      ++out.refused;
    ++out.messages;
    out.bytes_sent += request.size();
  }
  return out;
}

outcome unfinished_bodies(const target& at) {
  return flood(at, [](stranger& who, random_source& random) {
    if (who.bytes_sent() > 1_MiB) { // all but the last piece is there
      std::this_thread::sleep_for(std::chrono::milliseconds{5});
      return who.send(wire::ping{random.next() | 1U});
    }
    wire::part part{.round = random_round(random), .count = 4 * 1024 * 1024, .weight = 1};
    auto header = wire::encode(wire::message{wire::event{part}});
    constexpr std::uint32_t piece = 1U << 20U;
    bool open = who.send_prefix(
      {net::frame_kind::opening, static_cast<std::uint32_t>(header.size()), 4 * part.count},
      header);
    for (int i = 0; i < 15 && open; ++i)
      open = who.send_prefix({net::frame_kind::slice, 0, piece}, std::string(piece, 'b'));
    return open;
  });
}

outcome unfinished_headers(const target& at) {
  return flood(at, [](stranger& who, random_source&) {
    if (who.bytes_sent() > 200_KiB) { // all but the end is there
      std::this_thread::sleep_for(std::chrono::milliseconds{5});
      return true;
    }
    return who.send_prefix({net::frame_kind::message, 250 * 1024, 0}, std::string(240 * 1024, 'h'));
  });
}

outcome hold_links(const target& at) {
  return flood(at, [](stranger& who, random_source& random) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
    return who.send(wire::ping{random.next() | 1U});
  });
}

outcome hold_sockets(const target& at) {
  return hold(at, {});
}

outcome hold_upgrades(const target& at) {
  return hold(at, "GET /peer HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n"
                  "Upgrade: waggle/1\r\n\r\n");
}

outcome announce_addresses(const target& at) {
  outcome out;
  pace paced{at};
  random_source random{entropy_seed()};
  const std::vector<endpoint> bait{{"a.name.that.does.not.exist.invalid", 7700},
                                   {"127.0.0.1", 22},
                                   {"169.254.169.254", 80},
                                   {"192.0.2.1", 7700}};
  while (paced.goes_on(0)) {
    stranger who{at.where, at.run, random.next() | 1U};
    if (!who.join(bait) || !who.ping())
      ++out.refused;
    ++out.messages;
  }
  return out;
}

namespace {

outcome knock_again(const knock& at_the_door, const target& at) {
  outcome out;
  for (pace paced{at}; paced.goes_on(0); ++out.messages)
    out.refused += at_the_door.play(at).refusal == at_the_door.refusal ? 1 : 0;
  return out;
}

} // namespace

const std::vector<attack>& all() {
  static const auto table = [] {
    std::vector<attack> out{
      {"unknown-rounds", flood_unknown_rounds},
      {"round-messages", flood_round_messages},
      {"open-records", flood_open_records},
      {"made-up-records", flood_made_up_records},
      {"small-records", flood_small_records},
      {"forged-records", flood_forged_records},
      {"forged-progress", flood_forged_progress},
      {"signed-progress", flood_signed_progress},
      {"notes", flood_notes},
      {"finds", flood_finds},
      {"unread-answers", flood_unread_answers},
      {"unread-pieces", flood_unread_pieces},
      {"handshakes", flood_handshakes},
      {"pages", flood_pages},
      {"unfinished-bodies", unfinished_bodies},
      {"unfinished-headers", unfinished_headers},
      {"links", hold_links},
      {"sockets", hold_sockets},
      {"upgrades", hold_upgrades},
      {"addresses", announce_addresses},
      {"far-epochs", claim_far_epochs},
      {"another-history", claim_another_history},
      {"claimed-samples", claim_samples},
      {"other-parameters", claim_other_parameters},
    };
    for (const auto& each : knocks())
      out.push_back({each.name, [&each](const target& at) { return knock_again(each, at); }});
    return out;
  }();
  return table;
}

latency measure_pings(const target& at, stranger honest) {
  latency out;
  auto until = clock::now() + at.duration;
  std::vector<double> all;
  while (clock::now() < until) {
    bool joined = honest.joined() || honest.join();
    if (auto took = joined ? honest.ping() : std::nullopt) {
      all.push_back(static_cast<double>(took->count()) / 1e3);
    } else {
      ++out.lost;
      out.why = honest.why();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
  }
  std::sort(all.begin(), all.end());
  if (!all.empty()) {
    out.median = all[all.size() / 2];
    out.worst = all.back();
  }
  return out;
}

std::string refused_newcomer(const target& at, const std::string& source) {
  std::string why;
  random_source random{entropy_seed()};
  for (auto until = clock::now() + at.duration; clock::now() < until;) {
    stranger newcomer{at.where, at.run, random.next() | 1U, source};
    if (!newcomer.join() || !newcomer.ping())
      why = newcomer.why();
    std::this_thread::sleep_for(std::chrono::milliseconds{100});
  }
  return why;
}

} // namespace waggle::attacks
