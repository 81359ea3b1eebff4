#include "runtime/cli/strategy_costs.hpp"

#include <algorithm>
#include <tuple>

#include <nlohmann/json.hpp>

#include "runtime/watch/json_fields.hpp"

namespace waggle {

namespace {

// RESULTS.md, "Few rounds on slow links": headers, and what a round waits beside its bytes.
constexpr double with_headers = 1.025;
constexpr double delays_of_round = 3.5; // contribution, result, digests, decision
// To each of the others, in an epoch and in each second of it, with the headers of TLS and TCP:
// reports, notes, signs of life, what a round agrees on.
constexpr double words_of_epoch = 5e3;
constexpr double words_a_second = 800;

constexpr double program_bytes = 280e6; // LibTorch, code and stacks
constexpr double plain_vectors = 4;     // parameters, gradient, two of Adam's

/// RESULTS.md, "Loss over samples": 64,000 samples, a cosine, outer-momentum=0.5 but for sparse2.
std::optional<double> measured_gap(const strategy_cost& row) {
  struct gap {
    std::uint64_t steps;
    codec_id codec;
    double loss;
  };
  constexpr gap gaps[]{{1, codec_id::none, 0},      {25, codec_id::none, 0.037},
                       {50, codec_id::none, 0.068}, {100, codec_id::none, 0.081},
                       {25, codec_id::e3m0, 0.060}, {30, codec_id::sparse2, 0.221}};
  const auto* known = std::ranges::find_if(gaps, [&](const gap& of) {
    return of.steps == row.steps && of.codec == row.codec && row.overlap == 0 && row.fragments == 1;
  });
  return known != std::end(gaps) ? std::optional{known->loss} : std::nullopt;
}

/// RESULTS.md, "What a trainer keeps in memory".
double vectors_of(const strategy_cost& row, std::uint64_t peers) {
  auto n = static_cast<double>(peers);
  auto contributions = (n - 1) / n * bits_per_value(row.codec) / 32;
  if (row.steps == 1)
    return plain_vectors + 2 + contributions; // outgoing, result
  auto residual = sends_contributions_back(row.codec) ? 1 : 0;
  auto of_round = 2 + contributions + residual; // progress, copy, and the first with its residual
  return plain_vectors + 2 + residual           // anchor, momentum
         + of_round / static_cast<double>(row.fragments);
}

void set_costs(strategy_cost& row, const planned_run& run) {
  auto sent = bytes_sent(row.codec, run.values / row.fragments, run.peers);
  row.round_seconds =
    run.peers < 2 ? 0
                  : 8 * sent / run.link.bits_per_second + delays_of_round * run.link.delay_seconds;
  auto computes = static_cast<double>(row.steps / row.fragments) * run.step_seconds;
  row.loss_gap = measured_gap(row);
  row.bytes =
    sent + static_cast<double>(run.peers - 1) * (words_of_epoch + words_a_second * computes);
  auto hidden = static_cast<double>(row.overlap) * run.step_seconds;
  row.share = computes / (computes + std::max(row.round_seconds - hidden, 0.0));
  row.memory = 4
                 * (vectors_of(row, run.peers) * static_cast<double>(run.values)
                    + static_cast<double>(run.frozen))
               + program_bytes;
}

strategy_cost outer_steps(std::uint64_t steps, std::uint64_t overlap, codec_id codec,
                          std::uint64_t fragments = 1) {
  strategy_cost row;
  row.strategy =
    "diloco:steps=" + std::to_string(steps)
    + (sends_contributions_back(codec) ? ",outer-rate=1,outer-momentum=0" : ",outer-momentum=0.5")
    + (overlap > 0 ? ",overlap=" + std::to_string(overlap) : "")
    + (fragments > 1 ? ",fragments=" + std::to_string(fragments) : "");
  row.codec = codec;
  row.steps = steps;
  row.overlap = overlap;
  row.fragments = fragments;
  return row;
}

} // namespace

std::string strategy_cost::options() const {
  return "--strategy " + strategy
         + (codec == codec_id::none ? "" : " --codec " + std::string{to_string(codec)});
}

double bytes_sent(codec_id codec, std::uint64_t values, std::uint64_t peers) {
  auto n = static_cast<double>(peers);
  auto times = sends_contributions_back(codec) ? (n * n - 1) / n : 2 * (n - 1) / n;
  return with_headers * times * static_cast<double>(values) * bits_per_value(codec) / 8;
}

std::vector<strategy_cost> strategy_costs(const planned_run& run) {
  std::vector<strategy_cost> rows;
  for (auto codec : {codec_id::none, codec_id::blockwise8}) {
    strategy_cost row{.strategy = "data-parallel", .codec = codec};
    rows.push_back(std::move(row));
  }
  for (std::uint64_t steps : {25, 50, 100, 200})
    for (auto codec : {codec_id::none, codec_id::blockwise8, codec_id::e3m0})
      for (auto overlap : {std::uint64_t{0}, steps / 2})
        rows.push_back(outer_steps(steps, overlap, codec));
  for (std::uint64_t steps : {30, 100, 300})
    for (auto overlap : {std::uint64_t{0}, steps / 2})
      rows.push_back(outer_steps(steps, overlap, codec_id::sparse2));
  for (auto codec : {codec_id::none, codec_id::blockwise8, codec_id::e3m0, codec_id::sparse2})
    rows.push_back(outer_steps(100, 12, codec, 4));
  for (auto& row : rows)
    set_costs(row, run);
  std::ranges::stable_sort(rows, {}, [](const strategy_cost& row) {
    return std::tuple{row.steps, -bits_per_value(row.codec)};
  });
  return rows;
}

planned_run seen_in(const std::vector<nlohmann::ordered_json>& statuses,
                    const nlohmann::ordered_json& peers, planned_run otherwise) {
  auto run = otherwise;
  if (auto many = number_in(statuses.at(0), "peers"); many && *many >= 1 && *many <= 64)
    run.peers = static_cast<std::uint64_t>(*many);
  double least = 0;
  for (const auto& status : statuses)
    if (auto rate = number_in(status, "bandwidth").value_or(0); rate > 0)
      least = least > 0 ? std::min(least, rate) : rate;
  run.link.bits_per_second = least > 0 ? 8 * least : run.link.bits_per_second;
  double pass = 0;
  double way = 0;
  for (const auto& peer : field(peers, "peers")) {
    pass = std::max(pass, number_in(peer, "pass_seconds").value_or(0));
    way = std::max(way, number_in(peer, "rtt_ms").value_or(0) / 2000);
  }
  run.step_seconds = pass > 0 ? pass : run.step_seconds;
  run.link.delay_seconds = way > 0 ? way : run.link.delay_seconds;
  return run;
}

const strategy_cost* best_of(const std::vector<strategy_cost>& rows, const planned_run& run) {
  const strategy_cost* best = nullptr;
  for (const auto& row : rows) {
    if (run.memory > 0 && row.memory > static_cast<double>(run.memory))
      continue;
    if (row.share >= share_wanted)
      return &row;
    if (best == nullptr || row.share > best->share)
      best = &row;
  }
  return best;
}

} // namespace waggle
