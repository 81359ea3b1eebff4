#pragma once

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/allreduce/round_state.hpp"
#include "runtime/averaging/result_digest.hpp"
#include "tests/runtime/allreduce/recorder.hpp"
#include "tests/runtime/averaging/plans.hpp"

namespace waggle::testing {

/// Member 1 of three, each of which reduces a part of ten values, without an engine: the test
/// delivers messages, and sees what the protocol decides. Member m contributes m + 1 everywhere
/// with weight 1, so the mean is 2.
class round_fixture : public ::testing::Test {
protected:
  static constexpr std::size_t us = 1;

  round_fixture() {
    plan_ = plan_for(3, 10, 10);
    plan_.reduce_by = {aggregator::median, 1, 0};
  }

  /// To be called once the plan and the configuration are as the test wants them.
  void begin() {
    port_ = std::make_unique<recorder>(plan_.members[us].peer.id);
    std::shared_ptr<round_port> port{port_.get(), [](round_port*) {}};
    round_request request{plan_, us, contribution(us), 1};
    round_ = std::make_unique<round_state>(
      std::move(request), config_, round_memory{vector_pool::make(2), buffer_pool::make(0)}, port,
      [this] { return now_; }, round_protocol::options{});
    round_->perform = [this](const round_protocol::actions& actions) {
      decided_.insert(decided_.end(), actions.begin(), actions.end());
    };
  }

  std::shared_ptr<const float_vector> contribution(std::size_t member) const {
    return std::make_shared<const float_vector>(plan_.elements, static_cast<float>(member + 1));
  }
  payload part_of(std::size_t member, std::uint32_t part) const {
    return slice(payload_of(contribution(member)), 40 * std::size_t{part}, 40);
  }
  /// Part `part` of the result is here, from its owner.
  void put(std::uint32_t part, float value) {
    auto values = std::make_shared<float_vector>(10, value);
    round_->result.put(part, {values, values->data()});
    auto owner = round_->parts().owner(part, round_->view());
    ASSERT_EQ(round_->transfers.result(part, owner, round_->view().contributors, 0, now_),
              transfer_state::arrival::accept);
    ASSERT_TRUE(round_->weights.report(owner, round_->view().contributor_set(), 3, {1, 1, 1}));
  }
  void complete() {
    for (std::uint32_t part = 0; part < 3; ++part)
      put(part, 2);
  }

  template <class Message>
  std::vector<Message> sent() const {
    std::vector<Message> out;
    for (const auto& message : port_->sent)
      if (const auto* what = std::get_if<Message>(&message.what))
        out.push_back(*what);
    return out;
  }
  template <class Action>
  std::size_t decided() const {
    return static_cast<std::size_t>(
      std::count_if(decided_.begin(), decided_.end(),
                    [](const auto& action) { return std::holds_alternative<Action>(action); }));
  }
  digest share_of(std::size_t member) const { return sha256("share " + std::to_string(member)); }

  round_plan plan_;
  round_config config_;
  steady_time now_ = steady_time{} + 1h;
  std::unique_ptr<recorder> port_;
  std::unique_ptr<round_state> round_;
  round_protocol::actions decided_;
};

} // namespace waggle::testing
