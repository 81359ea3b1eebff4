// Lies about the run: well-formed, signed, and false.

#include <thread>

#include "runtime/crypto/digest.hpp"
#include "runtime/dht/record.hpp"
#include "runtime/progress/progress_ledger.hpp"
#include "tests/processes/attacks/attacks.hpp"

namespace waggle::attacks {

namespace {

using clock = std::chrono::steady_clock;

/// What the peer's own record says: a liar has to know the run's history to lie about it.
std::optional<progress_report> progress_of_the_run(stranger& who) {
  wire::dht_find find{.keys = {record_key(who.run(), record_kind::progress, "progress")}};
  auto answer = who.ask(find);
  const auto* found = answer ? std::get_if<wire::dht_found>(&*answer) : nullptr;
  std::optional<progress_report> newest;
  if (found == nullptr || found->answers.empty())
    return newest;
  for (const auto& entry : found->answers.front().records) {
    auto report = decode_progress(entry.owner, peer_id_of(entry.owner), entry.value);
    // Those of earlier liars do not count.
    if (report && report->claim.ready && report->claim.group_size > 0
        && report->claim.group_size < 64 && (!newest || report->time > newest->time))
      newest = *report;
  }
  return newest;
}

bool push(stranger& who, progress_report report) {
  report.who = {};
  report.time = system_wall_clock{}.now();
  record entry{.kind = record_kind::progress,
               .name = "progress",
               .value = encode_progress(report),
               .expiration = report.time + std::chrono::seconds{60},
               .sequence = static_cast<std::uint64_t>(to_nanoseconds(report.time))};
  sign_record(who.run(), who.self(), entry);
  return who.send(wire::event{wire::progress_push{entry}})
         && who.send(wire::call{entry.sequence, 1'000, wire::dht_store{{entry}}});
}

/// `links` identities join, learn what the run is at, and claim something else ten times a second.
template <class Lie>
outcome lie(const target& at, const Lie& about) {
  outcome out;
  random_source random{entropy_seed()};
  std::vector<stranger> all;
  for (std::size_t i = 0; i < at.links; ++i)
    all.emplace_back(at.where, at.run, random.next() | 1U);
  for (auto until = clock::now() + at.duration; clock::now() < until;) {
    for (auto& who : all) {
      auto before = who.bytes_sent();
      auto truth = who.joined() || who.join() ? progress_of_the_run(who) : std::nullopt;
      if (truth && about(who, *truth))
        ++out.messages;
      else
        ++out.refused;
      out.bytes_sent += who.bytes_sent() - before;
      if (!who.joined() || !who.drain())
        who = stranger{at.where, at.run, random.next() | 1U};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{100});
  }
  return out;
}

} // namespace

outcome claim_far_epochs(const target& at) {
  return lie(at, [](stranger& who, progress_report report) {
    report.epoch = epoch_id{1'000'000'000};
    report.claim.group_size = 64;
    report.claim.past.work = ~std::uint64_t{0};
    report.parameters = {};
    return push(who, report);
  });
}

outcome claim_another_history(const target& at) {
  return lie(at, [](stranger& who, progress_report report) {
    report.epoch = epoch_id{report.epoch.value() + 2};
    report.claim.past = {sha256("made up"), report.claim.past.branch, report.epoch,
                         ~std::uint64_t{0}};
    report.claim.group_size = 64;
    return push(who, report);
  });
}

outcome claim_samples(const target& at) {
  return lie(at, [](stranger& who, progress_report report) {
    report.samples = 1'000'000'000;
    report.samples_per_second = 1e12;
    bool open = push(who, report);
    wire::progress_note note{.epoch = report.epoch, .branch = report.claim.past.branch};
    for (int i = 0; i < 100 && open; ++i) {
      note.samples = report.samples + static_cast<std::uint64_t>(i) + 1;
      open = who.send(wire::event{note});
    }
    return open;
  });
}

outcome claim_other_parameters(const target& at) {
  return lie(at, [](stranger& who, progress_report report) {
    report.parameters = sha256("other parameters");
    return push(who, report);
  });
}

} // namespace waggle::attacks
