#include "runtime/config/options.hpp"

#include <algorithm>
#include <cctype>

#include "runtime/averaging/round_plan.hpp"
#include "runtime/codec/codec_choice.hpp"
#include "runtime/config/agreed_values.hpp"
#include "runtime/config/option_setters.hpp"

namespace waggle {

namespace {

using namespace option_setters;

std::vector<option_spec> make_table() {
  using o = run_options;
  constexpr std::uint64_t many = std::uint64_t{1} << 40U;
  return {
    {"run-id", "NAME", "waggle", "Peers of one run use the same name; others are refused.", "run",
     [](o& x, std::string_view v) -> status {
       auto plain = [](char c) {
         return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
       };
       if (v.empty() || v.size() > 64 || !std::all_of(v.begin(), v.end(), plain))
         return failure{ec::bad_config, "must have 1 to 64 letters, digits, - or _: "
                                        "it becomes part of the DHT's keys"};
       x.run_id = std::string{v};
       return done{};
     }},
    {"data-dir", "DIR", ".waggle", "Where the identity and the checkpoints are kept.", "run",
     [](o& x, std::string_view v) -> status {
       if (v.empty())
         return failure{ec::bad_config, "must name a folder"};
       x.data_dir = std::filesystem::path{v};
       return done{};
     }},
    {"log-level", "LEVEL", "info", "debug, info, warn or error.", "run",
     one_of(&o::log_level, {"debug", "info", "warn", "error"})},
    {"log-format", "FORMAT", "text", "text or json.", "run",
     one_of(&o::log_format, {"text", "json"})},
    {"duration", "TIME", "0", "Stop after this long; 0: run until stopped.", "run",
     duration(&o::duration, 0ms, "")},
    {"seed", "N", "0", "Makes random choices repeatable; 0: from the operating system.", "run",
     whole(&o::seed, 0, ~std::uint64_t{0}, "")},

    {"listen", "HOST:PORT", "0.0.0.0:7700",
     "Where peers, browsers and Prometheus reach this peer; port 0 picks a free one.", "peer",
     [](o& x, std::string_view v) -> status {
       auto where = parse_address(v);
       if (!where)
         return where.error();
       x.listen = *where;
       return done{};
     }},
    {"announce", "HOST:PORT", "",
     "The address that other peers dial, if it differs from --listen (port 0: the bound port).",
     "peer",
     [](o& x, std::string_view v) -> status {
       auto where = parse_address(v);
       if (!where)
         return where.error();
       x.announce = *where;
       return done{};
     }},
    {"initial-peers", "A,B", "",
     "Peers of the run to join through; one that answers is enough. None: start the run.", "peer",
     [](o& x, std::string_view v) -> status {
       auto all = parse_endpoints(v);
       if (!all)
         return all.error();
       x.initial_peers = *all;
       return done{};
     }},
    {"client-mode", "", "false",
     "Accept no connections, only dial: for peers behind NAT. Status and metrics stay on "
     "127.0.0.1, at the port of --listen if that is given.",
     "peer", yes_no(&o::client_mode)},
    {"identity", "FILE", "",
     "File with the peer's key; by default identity.pem in --data-dir, created if missing.", "peer",
     path(&o::identity)},

    {"target-batch-size", "N", "256", "Samples per optimizer step, summed over all peers.",
     "training", whole(&o::target_batch_size, 1, many, "an epoch needs at least one sample"),
     agreed::value(&o::target_batch_size)},
    {"micro-batch", "N", "8", "Samples of one forward and backward pass of this peer.", "training",
     whole(&o::micro_batch, 1, 1U << 20U, "a step needs at least one sample")},
    {"epochs", "N", "0", "Optimizer steps of the run; 0: until stopped.", "training",
     whole(&o::epochs, 0, many, ""), agreed::value(&o::epochs)},
    {"model", "NAME", "char-gpt", "char-gpt or mlp.", "training",
     one_of(&o::model, {"char-gpt", "mlp"}), agreed::value(&o::model)},
    {"layers", "N", "2", "Blocks of char-gpt, hidden layers of mlp.", "training",
     whole(&o::layers, 1, 256, "more does not fit a peer"), agreed::value(&o::layers)},
    {"width", "N", "64", "Values per position (char-gpt) or per hidden layer (mlp).", "training",
     whole(&o::width, 1, 65536, "more does not fit a peer"), agreed::value(&o::width)},
    {"heads", "N", "4", "Attention heads of char-gpt; must divide --width.", "training",
     whole(&o::heads, 1, 1024, "more does not fit a peer"), agreed::value(&o::heads)},
    {"context", "N", "64", "Context length of char-gpt in bytes.", "training",
     whole(&o::context, 2, 65536, "a prediction needs something before it"),
     agreed::value(&o::context)},
    {"data", "PATH", "synthetic", "A text file, a folder of text files, or 'synthetic'.",
     "training", text(&o::data), agreed::data},
    {"optimizer", "NAME", "adamw", "sgd, adam or adamw.", "training",
     one_of(&o::optimizer, {"sgd", "adam", "adamw"}), agreed::value(&o::optimizer)},
    {"lr", "X", "0.003", "Peak learning rate.", "training",
     real(&o::lr, {0, 1e6, "a negative rate would climb the loss",
                   "every optimizer diverges with a larger one"}),
     agreed::value(&o::lr)},
    {"schedule", "NAME", "constant", "constant or warmup-cosine (which needs --epochs).",
     "training", one_of(&o::schedule, {"constant", "warmup-cosine"}), agreed::value(&o::schedule)},
    {"warmup-epochs", "N", "0", "Epochs during which the learning rate rises linearly.", "training",
     whole(&o::warmup_epochs, 0, many, ""), agreed::value(&o::warmup_epochs)},
    {"weight-decay", "X", "0", "Weight decay; decoupled for adamw.", "training",
     real(&o::weight_decay, {0, 1e6, "a negative one would let the weights grow without end",
                             "a larger one would erase the weights in one step"}),
     agreed::value(&o::weight_decay)},
    {"momentum", "X", "0", "Momentum of sgd.", "training",
     real(&o::momentum, {0, 1, "a negative one would work against the gradients",
                         "from 1 on past gradients would never fade", true}),
     agreed::value(&o::momentum)},
    {"device", "NAME", "auto", "auto, cpu, cuda or cuda:N.", "training",
     [](o& x, std::string_view v) -> status {
       bool indexed = v.starts_with("cuda:") && parse_whole(v.substr(5)).ok();
       if (v != "auto" && v != "cpu" && v != "cuda" && !indexed)
         return failure{ec::bad_config, "is not one of auto, cpu, cuda, cuda:N"};
       x.device = std::string{v};
       return done{};
     }},
    {"threads", "N", "1", "Compute threads.", "training",
     whole(&o::threads, 1, 1024, "at least one")},
    {"strict-target", "BOOL", "true",
     "End an epoch only on samples that were reported, not on extrapolated ones.", "training",
     yes_no(&o::strict_target)},
    {"step-interval", "TIME", "0",
     "Minimum time between two passes: leaves the machine to other programs.", "training",
     duration(&o::step_interval, 0ms, "")},
    {"join-timeout", "TIME", "15s",
     "If addresses of other peers are known: search for the run this long before training alone.",
     "training", duration(&o::join_timeout, 0ms, "")},
    {"start-alone", "BOOL", "false",
     "Start training if no address answers within --join-timeout, even without a state of the run.",
     "training", yes_no(&o::start_alone)},
    {"on-split", "WHAT", "continue",
     "When cut off from most of the group: continue provisionally, or pause until it is back.",
     "training", one_of(&o::on_split, {"continue", "pause"})},
    {"resume", "BOOL", "true", "Keep checkpoints in --data-dir and resume from the newest one.",
     "training", yes_no(&o::resume)},
    {"checkpoint-interval", "TIME", "5s",
     "Minimum time between two checkpoints, which are written at the end of an epoch.", "training",
     duration(&o::checkpoint_interval, 0ms, "")},
    {"linger", "TIME", "10s", "After --epochs: keep serving the state to other peers this long.",
     "training", duration(&o::linger, 0ms, "")},

    {"codec", "CHOICE", "none",
     "Encoding of parts on the network: none (float32), float16, bfloat16, scaled_float16, "
     "uniform8, quantile8, blockwise8, or per tensor: size:65536,float16,blockwise8.",
     "averaging",
     [](o& x, std::string_view v) -> status {
       auto choice = parse_codec_choice(v);
       if (!choice) {
         std::vector<std::string> names;
         for (auto codec : all_codecs())
           names.emplace_back(to_string(codec));
         return failure{ec::bad_config, "is no codec; the nearest is " + nearest(v, names) + " ("
                                          + choice.error().detail + ")"};
       }
       x.codec = std::string{v};
       return done{};
     },
     agreed::codec},
    {"shared-memory", "BOOL", "true",
     "Send parts to peers on this host through shared memory instead of TCP.", "averaging",
     yes_no(&o::shared_memory)},
    {"congestion", "NAME", "auto",
     "Congestion control of links to other machines; auto: cubic, or bbr where packets are lost.",
     "averaging", text(&o::congestion)},
    {"group-bits", "BITS", "",
     "Bucket in which to look for partners, as digits 0 and 1. empty: one bucket for all peers; "
     "auto: more digits as the swarm grows.",
     "averaging",
     [](o& x, std::string_view v) -> status {
       if (v != "auto" && (v.find_first_not_of("01") != std::string_view::npos || v.size() > 64))
         return failure{ec::bad_config, "is neither auto nor at most 64 digits 0 and 1"};
       x.group_bits = std::string{v};
       return done{};
     },
     agreed::group_bits},
    {"error-feedback", "BOOL", "false",
     "Add what a lossy codec drops of this peer's vector in one round to the next round.",
     "averaging", yes_no(&o::error_feedback)},
    {"aggregator", "NAME", "mean",
     "mean; or, against Byzantine members: trimmed_mean, median, centered_clip, krum.", "averaging",
     one_of(&o::aggregator, {"mean", "trimmed_mean", "median", "centered_clip", "krum"}),
     agreed::value(&o::aggregator)},
    {"faulty-max", "N", "0", "Byzantine members to tolerate, for trimmed_mean and krum.",
     "averaging", whole(&o::faulty_max, 0, 31, "fewer than half of a round's members"),
     agreed::value(&o::faulty_max)},
    {"auxiliary", "BOOL", "false", "Only reduce for other peers: contribute nothing.", "averaging",
     yes_no(&o::auxiliary)},
    {"reduce-for-clients", "BOOL", "true",
     "If all trainers of the run are in client mode, so that they cannot reach each other: reduce "
     "for them and relay their state.",
     "helping", yes_no(&o::reduce_for_clients)},
    {"reduce-elements-max", "N", "268435456",
     "The longest gradient, in float32 values, that --reduce-for-clients accepts. It needs memory "
     "for about three of them.",
     "helping",
     whole(&o::reduce_elements_max, 1, plan_elements_max,
           "a round has at least one value and at most 2^33")},
    {"bandwidth", "BYTES", "unknown",
     "Bytes per second that this peer can send and receive; peers with more reduce more. unknown: "
     "as measured from its transfers, and the mean of the group until then. 0: never reduce for "
     "others.",
     "averaging",
     [](o& x, std::string_view v) -> status {
       if (v == "unknown") {
         x.bandwidth.reset();
         return done{};
       }
       auto value = parse_bytes(v);
       if (!value)
         return value.error();
       x.bandwidth = *value;
       return done{};
     }},
    {"min-vector-size", "N", "0", "A member whose share would have fewer values reduces nothing.",
     "averaging", whole(&o::min_vector_size, 0, std::uint64_t{1} << 33U, ""),
     agreed::value(&o::min_vector_size)},
    {"reduce-threads", "N", "0",
     "Extra threads for large sums, beside the one that reads the network; needs spare cores.",
     "averaging", whole(&o::reduce_threads, 0, 256, "")},
    {"part-size", "BYTES", "auto",
     "Bytes of a part as float32, the unit of transfer and reduction. auto: 512KiB, or less where "
     "a member's link is known to be so slow that smaller parts help.",
     "averaging",
     [](o& x, std::string_view v) -> status {
       if (v == "auto") {
         x.part_bytes.reset();
         return done{};
       }
       auto value = parse_bytes(v);
       if (!value)
         return value.error();
       if (*value < 4096 || *value > 16U << 20U)
         return failure{ec::bad_config, "is out of range: a part must fit into one frame (16MiB) "
                                        "and be much larger than its header (4KiB)"};
       x.part_bytes = *value;
       return done{};
     },
     agreed::part_size},
    {"min-group-size", "N", "2", "Smaller groups do not average.", "averaging",
     whole(&o::min_group_size, 1, 64, "a round has at most 64 members")},
    {"target-group-size", "N", "64", "A group with this many members is complete.", "averaging",
     whole(&o::target_group_size, 2, 64,
           "a group of 1 averages nothing, a round has at most 64 members"),
     agreed::value(&o::target_group_size)},
    {"min-contributors", "N", "1", "A round with fewer contributors fails.", "averaging",
     whole(&o::min_contributors, 1, 64, "a round has at most 64 members"),
     agreed::value(&o::min_contributors)},
    {"matchmaking-time", "TIME", "3s", "A group that is not complete begins after this long.",
     "averaging", duration(&o::matchmaking_time, 10ms, "other peers need time to find it")},
    {"averaging-timeout", "TIME", "60s",
     "Time limit of matchmaking and all-reduce of one epoch together.", "averaging",
     duration(&o::averaging_timeout, 100ms, "a round needs a few round trips")},
    {"stall-timeout", "TIME", "5s",
     "A member that sends nothing for this long is excluded from the round.", "averaging",
     duration(&o::stall_timeout, 50ms, "a shorter one would take every hiccup for a failure")},

    {"elements", "N", "1048576", "float32 values in the vector of waggle average.", "average",
     whole(&o::elements, 1, std::uint64_t{1} << 33U, "a round's vector has at most 2^33 values"),
     agreed::value(&o::elements)},
    {"rounds", "N", "0", "Stop after this many rounds; 0: run until stopped.", "average",
     whole(&o::rounds, 0, many, "")},
    {"weight", "X", "1", "Weight of this peer's vector in the mean.", "average",
     real(&o::weight, {0, 1e30, "contributions are not subtracted from a mean",
                       "sums of a round's weights would overflow"})},
    {"alpha", "X", "1", "How far the own vector moves towards the mean: 1 replaces it, 0 keeps it.",
     "average",
     real(&o::alpha, {-1e6, 1e6, "1 goes all the way to the mean, 0 stays",
                      "1 goes all the way to the mean, 0 stays"})},
    {"deltas", "BOOL", "false",
     "Keep the codec's rounding error out of the own vector: equal vectors stay unchanged.",
     "average", yes_no(&o::deltas)},
    {"gather", "TEXT", "", "A text that is sent to all members of the group.", "average",
     [](o& x, std::string_view v) -> status {
       if (v.size() > gather_bytes_max)
         return failure{ec::bad_config,
                        "is longer than " + std::to_string(gather_bytes_max) + " bytes"};
       x.gather = std::string{v};
       return done{};
     }},
    {"expected-peers", "N", "0", "Begin as soon as the group has this many members; 0: not known.",
     "average", whole(&o::expected_peers, 0, 64, "a round has at most 64 members")},
    {"reuse-group", "BOOL", "true", "Reuse the group of the last complete round.", "average",
     yes_no(&o::reuse_group)},
    {"fault-at", "MOMENT", "",
     "Break this peer at this point of a round: sent:K, received:K (parts), result:K, prepared or "
     "committed.",
     "For tests",
     [](o& x, std::string_view v) -> status {
       auto point = parse_fault_point(v);
       if (!point)
         return point.error();
       x.fault_at = *point;
       return done{};
     }},
    {"fault", "NAME", "kill", "How --fault-at breaks it: kill or stop (SIGKILL, SIGSTOP).",
     "For tests", one_of(&o::fault, {"kill", "stop"})},
    {"fault-round", "N", "1", "The first round of this peer in which --fault-at may break it.",
     "For tests", whole(&o::fault_round, 1, many, "rounds count from 1")},

    {"peers", "N", "4", "Peers that waggle swarm starts.", "swarm",
     whole(&o::peers, 1, 64, "they run on one machine")},
    {"kill-after", "TIME", "0", "Kill one peer (SIGKILL) after this long; 0: never.", "swarm",
     duration(&o::kill_after, 0ms, "")},
    {"join-after", "TIME", "0", "Start another peer after this long; 0: never.", "swarm",
     duration(&o::join_after, 0ms, "")},

    {"json", "FILE", "", "Write the result as JSON to this file.", "output",
     [](o& x, std::string_view v) -> status {
       x.json = true;
       if (!v.empty() && v != "true")
         x.json_file = std::filesystem::path{v};
       return done{};
     }},
    {"steps", "N", "50", "Micro-steps to measure.", "bench",
     whole(&o::steps, 1, 1U << 20U, "at least one")},
  };
}

} // namespace

const std::vector<option_spec>& option_table() {
  static const auto table = make_table();
  return table;
}

const option_spec* find_option(std::string_view name) {
  const auto& table = option_table();
  auto found = std::find_if(table.begin(), table.end(),
                            [&](const option_spec& spec) { return spec.name == name; });
  return found == table.end() ? nullptr : &*found;
}

result<run_options> resolve(const settings& file, const settings& environment,
                            const settings& flags) {
  run_options options;
  for (const auto& spec : option_table()) {
    for (const auto* source : {&flags, &environment, &file}) {
      auto found = source->find(spec.name);
      if (found == source->end())
        continue;
      auto set = spec.set(options, found->second.value);
      if (!set)
        return failure{ec::bad_config, found->second.source + ": '" + found->second.value + "' "
                                         + set.error().detail};
      options.given[spec.name] = found->second.value;
      break;
    }
  }
  // The micro-batch is not part of the run's agreement: a peer that joins with only the run's
  // options must not fail on its default.
  if (!options.given.contains("micro-batch"))
    options.micro_batch = std::min(options.micro_batch, options.target_batch_size);
  if (auto fits = check_combinations(options); !fits)
    return fits.error();
  return options;
}

std::optional<std::string> too_many_threads(const run_options& options, std::uint64_t peers,
                                            std::uint64_t cores) {
  if (cores == 0 || peers * options.threads <= cores)
    return std::nullopt;
  auto count = [](std::uint64_t n, const char* what) {
    return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
  };
  auto who = peers == 1 ? "--threads " + std::to_string(options.threads)
                        : count(peers, "peer") + " with " + count(options.threads, "compute thread")
                            + " each";
  auto cure = cores >= peers        ? "--threads " + std::to_string(cores / peers)
              : options.threads > 1 ? "--threads 1 and --peers " + std::to_string(cores)
                                    : "--peers " + std::to_string(cores);
  return who + " on " + count(cores, "core")
         + ": threads that share a core slow each other down; use " + cure;
}

status check_combinations(const run_options& o) {
  auto bad = [](std::string why) { return failure{ec::bad_config, std::move(why)}; };
  if (o.client_mode && o.initial_peers.empty())
    return bad(
      "--client-mode needs --initial-peers: other peers cannot reach this one, so it has to "
      "know which ones to dial");
  if (o.client_mode && o.announce)
    return bad("--client-mode and --announce exclude each other: other peers do not dial a client");
  if (o.client_mode && o.auxiliary)
    return bad(
      "--client-mode and --auxiliary exclude each other: an auxiliary reduces for other peers, "
      "which have to reach it");
  auto how = parse_aggregator(o.aggregator);
  if (how)
    if (auto promise =
          check_aggregation({*how, static_cast<std::uint32_t>(o.faulty_max)}, o.target_group_size);
        !promise)
      return bad("--aggregator " + o.aggregator + ": " + promise.error().detail);
  if (o.micro_batch > o.target_batch_size)
    return bad("--micro-batch " + std::to_string(o.micro_batch)
               + " is larger than --target-batch-size " + std::to_string(o.target_batch_size)
               + ": one pass would end more than one epoch");
  if (o.min_group_size > o.target_group_size)
    return bad("--min-group-size is larger than --target-group-size: no group could ever begin");
  if (o.min_contributors > o.target_group_size)
    return bad("--min-contributors is larger than --target-group-size: every round would fail");
  if (o.matchmaking_time >= o.averaging_timeout)
    return bad("--matchmaking-time must be shorter than --averaging-timeout: no time would be left "
               "to average");
  if (o.width % o.heads != 0 && o.model == "char-gpt")
    return bad("--heads must divide --width");
  if (o.expected_peers > o.target_group_size)
    return bad(
      "--expected-peers is larger than --target-group-size: no group ever has that many members");
  if (o.momentum != 0 && o.optimizer != "sgd")
    return bad("--momentum belongs to --optimizer sgd; " + o.optimizer + " has its own");
  if (o.kill_after > 0ms && o.peers < 2)
    return bad("--kill-after needs --peers 2 or more: no peer would be left");
  if (o.duration > 0ms && o.kill_after >= o.duration)
    return bad("--kill-after must be shorter than --duration: it would never happen");
  if (o.duration > 0ms && o.join_after >= o.duration)
    return bad("--join-after must be shorter than --duration: it would never happen");
  if (o.schedule == "warmup-cosine" && o.epochs == 0)
    return bad("--schedule warmup-cosine needs --epochs: it has to know where to end");
  if (o.epochs != 0 && o.warmup_epochs > o.epochs)
    return bad("--warmup-epochs is larger than --epochs");
  return done{};
}

} // namespace waggle
