#include "runtime/averaging/round_plan.hpp"
#include "runtime/codec/codec_choice.hpp"
#include "runtime/config/option_bindings.hpp"

namespace waggle::option_bindings {

namespace {

using o = run_options;

constexpr const char* a_round_is_small = "a round has at most 64 members";

result<codec_choice> codec(std::string_view v) {
  auto read = parse_codec_choice(v);
  if (!read)
    return failure{ec::bad_config, "is no codec; the nearest is "
                                     + nearest(v, names_in(offered_codec_table)) + " ("
                                     + read.error().detail + ")"};
  return read;
}

template <class... Steps>
auto in_matchmaking(Steps... steps) {
  return in(&o::matchmaking, steps...);
}
using matchmaking = matchmaking_config;
template <class... Steps>
auto in_averaging(Steps... steps) {
  return in(&o::averaging, steps...);
}
using averaging = averaging_config;

result<double> share_kept(std::string_view v) {
  if (auto all = parse_yes_no(v))
    return *all ? 1.0 : 0.0;
  return parse_bounded(v, {0, 1, "0 keeps nothing", "1 keeps all"});
}

std::string text_of_share(double share) {
  return share == 0 || share == 1 ? text_of(share == 1) : text_of(share);
}

result<std::string> bucket(std::string_view v) {
  if (v != "auto" && (v.find_first_not_of("01") != std::string_view::npos || v.size() > 64))
    return failure{ec::bad_config, "is neither auto nor at most 64 digits 0 and 1"};
  return std::string{v};
}

/// The number of bits. The bits themselves differ between peers.
std::string bucket_depth(const run_options& x) {
  return elastic_bits(x) ? "auto" : std::to_string(x.group_bits.size()) + " bits";
}

result<std::uint64_t> part_size(std::string_view v) {
  auto value = parse_bytes(v);
  if (value && (*value < 4096 || *value > 16U << 20U))
    return failure{ec::bad_config, "is out of range: a part must fit into one frame (16MiB) "
                                   "and be much larger than its header (4KiB)"};
  return value;
}

result<std::uint64_t> thread_count(std::string_view v) {
  auto value = parse_whole(v);
  if (!value || *value > 256)
    return failure{ec::bad_config, "must be auto, or a whole number between 0 and 256"};
  return value;
}

std::vector<option_row> vector_rows() {
  return {
    {"codec", "CHOICE",
     "Encoding of parts on the network: " + listed_with_notes(offered_codec_table, ", ")
       + ", or per tensor: size:65536,float16,blockwise8.",
     bound(in_averaging(&averaging::codec), codec,
           [](const codec_choice& choice) { return to_string(choice); })
       .agreed()},
    {"shared-memory", "BOOL",
     "Send parts to peers on this host through shared memory instead of TCP.",
     yes_no(&o::shared_memory)},
    {"congestion", "NAME",
     "Congestion control of links to other machines; auto: cubic, or bbr where packets are lost.",
     text(&o::congestion)},
    {"group-bits", "BITS",
     "Bucket in which to look for partners, as digits 0 and 1. empty: one bucket for all peers; "
     "auto, and with --groups moshpit empty: more digits as the swarm grows.",
     bound(&o::group_bits, bucket).agreed(bucket_depth)},
    {"error-feedback", "SHARE",
     "Add this share of what a lossy codec drops of this peer's vector in one round to the next "
     "round; true: all. If it is not given: 0.95 for progress with sparse2.",
     bound(in_averaging(&averaging::error_feedback), share_kept, text_of_share)
       .only_if(is_no_auxiliary,
                "and --auxiliary exclude each other: an auxiliary sends nothing of its own that a "
                "codec could change; leave out --error-feedback on this peer")},
    {"alpha", "X",
     "How far this peer's vector, or its model with strategies that average parameters, moves "
     "towards the mean of a round: 1 replaces it, 0 keeps it.",
     real(&o::averaging_alpha, {-1e6, 1e6, "1 goes all the way to the mean, 0 stays",
                                "1 goes all the way to the mean, 0 stays"})},
    {"aggregator", "NAME",
     "mean; or, against Byzantine members: "
       + listed(selected(aggregator_table, &aggregator_row::robust), ", ") + ".",
     choice(in_matchmaking(&matchmaking::reduce_by, &aggregation::how), aggregator_table,
            &aggregator_row::id)
       .agreed()},
    {"faulty-max", "N",
     "Byzantine members to tolerate, for "
       + listed(selected(aggregator_table, &aggregator_row::uses_faulty_max), " and ") + ".",
     whole(in_matchmaking(&matchmaking::reduce_by, &aggregation::faulty_max), 0, 31,
           "fewer than half of a round's members")
       .agreed()},
    {"check-sums", "SHARE",
     "With --faulty-max: the share of the parts, drawn anew in each round, that members other "
     "than the reducer sum again before the round counts. 0: reducers are believed. 1: all parts "
     "are checked.",
     real(&o::check_sums, {0, 1, "0 checks nothing", "1 checks all parts"})
       .agreed()
       .only_if(
         [](const o& x) { return x.matchmaking.reduce_by.faulty_max > 0 || x.check_sums == 0; },
         "needs --faulty-max: without Byzantine members, no reducer lies; set --faulty-max "
         "N, or leave --check-sums out")},
    {"trust-members", "BOOL",
     "Rounds check nothing of what their members say, as among processes of one user on one host.",
     yes_no(&o::trust_members)
       .agreed()
       .only_if([](const o& x) { return !x.members.empty(); },
                "needs --members KEY: without a list, whoever knows the run's name is a member")},
    {"auxiliary", "BOOL", "Only reduce for other peers: contribute nothing.",
     yes_no(&o::auxiliary)
       .only_if([](const o& x) { return !x.client_mode; },
                "and --client-mode exclude each other: an auxiliary reduces for other peers, which "
                "have to reach it; leave out --auxiliary, or --client-mode if they can")}};
}

} // namespace

void add_averaging_options(std::vector<option_spec>& table) {
  add_group(table, "averaging", vector_rows());
  add_group(
    table, "helping",
    {{"reduce-for-clients", "BOOL",
      "If all trainers of the run are in client mode, so that they cannot reach each other: reduce "
      "for them and relay their state.",
      yes_no(&o::reduce_for_clients)},
     {"reduce-elements-max", "N",
      "The longest gradient, in float32 values, that --reduce-for-clients accepts. It needs memory "
      "for about three of them.",
      whole(&o::reduce_elements_max, 1, plan_elements_max,
            "a round has at least one value and at most 2^33")}});
  add_group(
    table, "averaging",
    {{"bandwidth", "BYTES",
      "Bytes per second that this peer can send and receive; peers with more reduce more. unknown: "
      "as measured from its transfers, and the mean of the group until then. 0: never reduce for "
      "others.",
      bound_or("unknown", &o::bandwidth, parse_bytes)},
     {"min-vector-size", "N", "A member whose share would have fewer values reduces nothing.",
      whole(in_matchmaking(&matchmaking::min_vector_size), 0, plan_elements_max, "").agreed()},
     {"reduce-threads", "N",
      "Threads for large sums, in `waggle bench` for all. 0: the thread that reads the network "
      "computes them. auto: one per core that nothing else of this peer needs, at most 8.",
      bound_or("auto", &o::reduce_threads, thread_count)},
     {"part-size", "BYTES",
      "Bytes of a part as float32, the unit of transfer and reduction. auto: 512KiB, or less where "
      "a member's link is known to be so slow that smaller parts help.",
      bound_or("auto", &o::part_bytes, part_size).agreed()},
     {"min-group-size", "N", "waggle average and --groups moshpit: smaller groups do not average.",
      whole(in_matchmaking(&matchmaking::min_group_size), 1, 64, a_round_is_small)},
     {"target-group-size", "N", "A group with this many members is complete.",
      whole(in_matchmaking(&matchmaking::target_group_size), 2, 64,
            "a group of 1 averages nothing, a round has at most 64 members")
        .agreed()},
     {"min-contributors", "N", "A round with fewer contributors fails.",
      whole(in_matchmaking(&matchmaking::min_contributors), 1, 64, a_round_is_small).agreed()},
     {"matchmaking-time", "TIME",
      "waggle average and --groups moshpit: a group that is not complete begins after this long. "
      "If it is not given: at most a third of --averaging-timeout.",
      duration(in_matchmaking(&matchmaking::min_matchmaking_time), 10ms,
               "other peers need time to find it")},
     {"averaging-timeout", "TIME",
      "Time limit of matchmaking and all-reduce of one epoch together.",
      duration(&o::averaging_timeout, 100ms, "a round needs a few round trips")},
     {"allreduce-timeout", "TIME",
      "Time limit of the all-reduce in a round; 0: what is left of --averaging-timeout.",
      duration(&o::allreduce_timeout)},
     {"request-timeout", "TIME",
      "Time limit of one question to another peer about a group. If it is not given: shorter than "
      "--matchmaking-time.",
      duration(in_matchmaking(&matchmaking::request_timeout), 10ms,
               "an answer needs a round trip")},
     {"stall-timeout", "TIME",
      "A member that sends nothing for this long is excluded from the round.",
      duration(in_averaging(&averaging::round, &round_config::stall_timeout), 50ms,
               "a shorter one would take every hiccup for a failure")}});
}

} // namespace waggle::option_bindings
