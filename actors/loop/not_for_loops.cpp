#include "actors/loop/swarm_session.hpp"
#include "runtime/config/options.hpp"

namespace waggle {

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
    for (const auto& [option, member] : std::initializer_list<std::pair<const char*, const char*>>{
           {"run-id", "run"},
           {"initial-peers", "initial_peers"},
           {"listen", "listen"},
           {"announce", "announce"},
           {"data-dir", "data_dir"},
           {"log-level", "log_level"},
           {"target-batch-size", "target_batch_size"},
           {"epochs", "max_epochs"},
           {"strategy", "strategy"},
           {"model", "model"},
           {"data", "data"},
           {"join-timeout", "join_timeout"},
           {"start-alone", "start_alone"},
           {"resume", "resume"}})
      all.emplace(option, std::string{"a member of its own: set swarm_options::"} + member);
    for (const auto& hyper : hyper_parameters())
      all.emplace(hyper.name, "the optimizer's own: set it in the options of the torch optimizer");
    return all;
  }();
  return table;
}

} // namespace waggle
