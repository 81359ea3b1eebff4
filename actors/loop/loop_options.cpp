// The options of a loop: members of swarm_options, and options of `waggle train` in `more`.

#include <algorithm>
#include <cstdlib>

#include "actors/loop/swarm_session.hpp"
#include "runtime/cli/trainer_program.hpp"
#include "runtime/config/options.hpp"
#include "runtime/core/nearest.hpp"
#include "runtime/core/try.hpp"

namespace waggle {

namespace {

using given = const swarm_options&;

/// A member of swarm_options that is an option of `waggle train`. The session compares `model` and
/// `data` itself.
struct option_member {
  const char* option;
  std::string (*text)(given o);
  void (*set)(swarm_options& o, const std::string& text, const run_options& read);
  bool optional = false; // an empty text is none
};

constexpr option_member option_members[] = {
  {"run-id", [](given o) { return o.run; }, [](auto& o, auto& text, auto&) { o.run = text; }},
  {"swarm-key", [](given o) { return o.swarm_key; },
   [](auto& o, auto&, auto& read) { o.swarm_key = read.swarm_key; }, true},
  {"members", [](given o) { return o.members; },
   [](auto& o, auto& text, auto&) { o.members = text; }, true},
  {"members-list", [](given o) { return o.members_list; },
   [](auto& o, auto&, auto& read) { o.members_list = read.members_list; }, true},
  {"initial-peers",
   [](given o) {
     std::string all;
     for (const auto& where : o.initial_peers)
       all += (all.empty() ? "" : ",") + where;
     return all;
   },
   [](auto& o, auto&, auto& read) {
     for (const auto& where : read.initial_peers)
       o.initial_peers.push_back(to_string(where));
   },
   true},
  {"listen", [](given o) { return o.listen; }, [](auto& o, auto& text, auto&) { o.listen = text; }},
  {"announce", [](given o) { return o.announce; },
   [](auto& o, auto& text, auto&) { o.announce = text; }, true},
  {"data-dir", [](given o) { return o.data_dir.string(); },
   [](auto& o, auto&, auto& read) { o.data_dir = read.data_dir; }, true},
  {"log-level", [](given o) { return o.log_level; },
   [](auto& o, auto& text, auto&) { o.log_level = text; }},
  {"strategy", [](given o) { return o.strategy; },
   [](auto& o, auto& text, auto&) { o.strategy = text; }},
  {"target-batch-size", [](given o) { return std::to_string(o.target_batch_size); },
   [](auto& o, auto&, auto& read) { o.target_batch_size = read.target_batch_size; }},
  {"epochs", [](given o) { return std::to_string(o.max_epochs); },
   [](auto& o, auto&, auto& read) { o.max_epochs = read.epochs; }},
  {"join-timeout", [](given o) { return std::to_string(o.join_timeout.count()) + "ms"; },
   [](auto& o, auto&, auto& read) { o.join_timeout = read.join_timeout; }},
  {"start-alone", [](given o) -> std::string { return o.start_alone ? "true" : "false"; },
   [](auto& o, auto&, auto& read) { o.start_alone = read.may_start_alone; }},
  {"resume", [](given o) -> std::string { return o.resume ? "true" : "false"; },
   [](auto& o, auto&, auto& read) { o.resume = read.resume; }},
};

/// The names of the options of `waggle train`.
const std::vector<std::string>& names_of_options() {
  static const auto names = [] {
    auto groups = train_entry({}).groups;
    std::vector<std::string> found;
    for (const auto& option : option_table())
      if (std::find(groups.begin(), groups.end(), option.group) != groups.end())
        found.push_back(option.name);
    return found;
  }();
  return names;
}

failure bad_more(const std::string& why) {
  return {ec::bad_config, "swarm_options::more: " + why};
}

} // namespace

result<run_options> run_options_of(const swarm_options& o, std::uint64_t passes) {
  settings flags;
  for (const auto& [name, value] : o.more) {
    const auto* spec = find_option(name);
    if (spec != nullptr && !spec->loops.member.empty())
      return bad_more(name + " is a member of its own: set swarm_options::" + spec->loops.member);
    if (spec != nullptr && !spec->loops.instead.empty())
      return bad_more(name + " is not for loops: " + spec->loops.instead);
    const auto& known = names_of_options();
    if (std::find(known.begin(), known.end(), name) == known.end())
      return bad_more("waggle train has no option " + name + "; the nearest is "
                      + nearest(name, known));
    if (o.learning_rate == rate_owner::optimizer
        && (name == "lr" || name == "schedule" || name == "warmup-epochs"
            || name == "total-steps-in-epoch" || name == "schedule-unit"))
      return bad_more(name
                      + " needs learning_rate = rate_owner::run; now the optimizer owns the rate");
    // The optimizer, and so the names of its statistics, is known to `start` only.
    flags[name] = {name == averaged_statistics ? "none" : value, "--" + name};
  }
  for (const auto& member : option_members) {
    if (auto text = member.text(o); !text.empty() || !member.optional)
      flags[member.option] = {std::move(text), std::string{"--"} + member.option};
  }
  if (passes > 0)
    flags["passes"] = {std::to_string(passes), "waggle::shards"};
  auto look_up = [](const char* name) { return std::getenv(name); };
  auto all = resolve({}, from_environment({"initial-peers"}, look_up), flags);
  WAGGLE_TRY(key, all ? load_key(*all) : status{done{}});
  return all;
}

result<swarm_options> swarm_options::from(const std::filesystem::path& run_file) {
  WAGGLE_TRY(file, from_file(run_file));
  swarm_options out;
  for (const auto& [name, value] : *file) {
    const auto* spec = find_option(name);
    auto known = std::ranges::find(option_members, name, &option_member::option);
    if (!spec->loops.instead.empty())
      continue; // it is for peers of `waggle train`, or follows from the loop
    if (known == std::end(option_members)) {
      (name == "model"      ? out.model
       : name == "data"     ? out.data
       : name == "schedule" ? out.schedule
                            : out.more[name]) = value.value;
      continue;
    }
    run_options one;
    if (auto set = spec->set(one, value.value); !set)
      return failure{ec::bad_config,
                     value.source + ": '" + value.value + "' " + set.error().detail};
    known->set(out, value.value, one);
  }
  return out;
}

} // namespace waggle
