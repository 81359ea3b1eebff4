// The options of a loop: members of swarm_options, and options of `waggle train` in `more`.

#include <algorithm>
#include <cstdlib>
#include <regex>

#include "actors/loop/swarm_session.hpp"
#include "runtime/cli/trainer_program.hpp"
#include "runtime/config/options.hpp"
#include "runtime/core/nearest.hpp"

namespace waggle {

namespace {

using given = const swarm_options&;

/// A member of swarm_options instead of an option of `waggle train`.
struct option_member {
  const char* option;
  const char* name;
  std::string (*text)(given o) = nullptr; // null: the session compares it itself
  bool optional = false;                  // an empty text is none
};

constexpr option_member members[] = {
  {"run-id", "run", [](given o) { return o.run; }},
  {"initial-peers", "initial_peers",
   [](given o) {
     std::string all;
     for (const auto& where : o.initial_peers)
       all += (all.empty() ? "" : ",") + where;
     return all;
   },
   true},
  {"listen", "listen", [](given o) { return o.listen; }},
  {"announce", "announce", [](given o) { return o.announce; }, true},
  {"data-dir", "data_dir", [](given o) { return o.data_dir.string(); }, true},
  {"log-level", "log_level", [](given o) { return o.log_level; }},
  {"strategy", "strategy", [](given o) { return o.strategy; }},
  {"target-batch-size", "target_batch_size",
   [](given o) { return std::to_string(o.target_batch_size); }},
  {"epochs", "max_epochs", [](given o) { return std::to_string(o.max_epochs); }},
  {"join-timeout", "join_timeout",
   [](given o) { return std::to_string(o.join_timeout.count()) + "ms"; }},
  {"start-alone", "start_alone",
   [](given o) -> std::string { return o.start_alone ? "true" : "false"; }},
  {"resume", "resume", [](given o) -> std::string { return o.resume ? "true" : "false"; }},
  {"model", "model"},
  {"data", "data"},
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

const std::map<std::string, std::string>& options_not_for_loops() {
  static const auto table = [] {
    std::map<std::string, std::string> all{
      {"optimizer", "the optimizer's own: pass another torch optimizer to waggle::optimizer"},
      {"weight-decay", "the optimizer's own: set it in the options of the torch optimizer"},
      {"no-decay", "the optimizer's own: give vectors a parameter group with weight decay 0"},
      {"micro-batch", "the loop's own: pass the number of samples to optimizer::step"},
      {"device", "the module's own: move the module before the torch optimizer is constructed"},
      {"passes", "an argument of waggle::shards::of, which deals the samples of a loop"},
      {"from", "the loop's own: load the parameters before waggle::optimizer is constructed"},
      {"replicas", "the loop's own: wrap the module in torch's data parallelism"},
      {"devices", "the loop's own: wrap the module in torch's data parallelism"},
      {"precision", "the loop's own: compute the loss in the autocast of torch"},
      {"threads", "the process's own: call torch::set_num_threads"},
      {"duration", "the loop's own: end the loop, and then destroy the waggle::optimizer"},
      {"auxiliary",
       "not for a loop, which computes gradients: start `waggle train --auxiliary true`, which is "
       "for models of waggle train, or `waggle node`, which is for all models, but enters only "
       "groups in which no trainer accepts connections"},
    };
    for (const auto& member : members)
      all.emplace(member.option,
                  std::string{"a member of its own: set swarm_options::"} + member.name);
    for (const auto& hyper : hyper_parameters())
      all.emplace(hyper.name, "the optimizer's own: set it in the options of the torch optimizer");
    return all;
  }();
  return table;
}

failure in_members(const failure& why) {
  static const std::regex option{"`[^`]*`|--([a-z][a-z0-9-]*)"}; // in backticks is a command
  std::string out;
  auto rest = why.detail.begin();
  for (std::sregex_iterator found{rest, why.detail.end(), option}, end; found != end; ++found) {
    auto whole = (*found)[0];
    auto name = (*found)[1].str();
    out.append(rest, whole.first);
    rest = whole.second;
    const auto* member = std::ranges::find_if(
      members, [&name](const option_member& each) { return each.option == name; });
    if (name.empty())
      out += whole;
    else if (member != std::end(members))
      out += std::string{"swarm_options::"} + member->name;
    else
      out += (options_not_for_loops().contains(name) ? "" : "swarm_options::more: ") + name;
  }
  return {why.code, out.append(rest, why.detail.end())};
}

result<run_options> run_options_of(const swarm_options& o, std::uint64_t passes) {
  settings flags;
  for (const auto& [name, value] : o.more) {
    const auto& elsewhere = options_not_for_loops();
    if (auto other = elsewhere.find(name); other != elsewhere.end())
      return bad_more(name + " is " + other->second);
    const auto& known = names_of_options();
    if (std::find(known.begin(), known.end(), name) == known.end())
      return bad_more("waggle train has no option " + name + "; the nearest is "
                      + nearest(name, known));
    if (o.learning_rate == rate_owner::optimizer
        && (name == "lr" || name == "schedule" || name == "warmup-epochs"
            || name == "total-steps-in-epoch"))
      return bad_more(name
                      + " needs learning_rate = rate_owner::run; now the optimizer owns the rate");
    // The optimizer, and so the names of its statistics, is known to `start` only.
    flags[name] = {name == averaged_statistics ? "none" : value, "swarm_options::more: " + name};
  }
  for (const auto& member : members) {
    if (member.text == nullptr)
      continue;
    if (auto text = member.text(o); !text.empty() || !member.optional)
      flags[member.option] = {std::move(text), std::string{"swarm_options::"} + member.name};
  }
  if (passes > 0)
    flags["passes"] = {std::to_string(passes), "waggle::shards"};
  auto look_up = [](const char* name) { return std::getenv(name); };
  return resolve({}, from_environment({"initial-peers"}, look_up), flags);
}

} // namespace waggle
