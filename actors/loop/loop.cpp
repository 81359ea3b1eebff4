#include "waggle/loop.hpp"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <map>
#include <stdexcept>

#include "actors/loop/swarm_session.hpp"
#include "runtime/core/try.hpp"
#include "runtime/training/state_schema.hpp"

namespace waggle {

namespace {

/// The arrays of a loop, in the order of its table.
class array_model final : public loop_model {
public:
  array_model(std::vector<std::span<float>> tensors, std::vector<float> left_out,
              std::function<void(std::span<const float>, double)> update, std::uint64_t rounding)
    : tensors_(std::move(tensors)), left_out_(std::move(left_out)), update_(std::move(update)),
      rounding_(rounding) {}

  /// For `step`, which gets no gradient: the one that was offered.
  void offer(std::span<const float> gradient) { offered_ = gradient; }

  void apply(std::span<const float> gradient, double lr) override {
    update_(gradient, lr);
    ++steps_;
  }
  void step(double lr) override { apply(offered_, lr); }
  void read_tensor(std::size_t which, std::span<float> out) const override {
    std::copy(tensors_[which].begin(), tensors_[which].end(), out.begin());
  }
  void write_tensor(std::size_t which, std::span<const float> values) override {
    std::copy(values.begin(), values.end(), tensors_[which].begin());
  }
  [[nodiscard]] std::uint64_t optimizer_steps() const override { return steps_; }
  void set_optimizer_steps(std::uint64_t steps) override { steps_ = steps; }
  [[nodiscard]] std::uint64_t rounding() const override { return rounding_; }

private:
  const std::vector<std::span<float>> tensors_;
  std::vector<float> left_out_; // which one of them is: keeps its memory when this moves
  const std::function<void(std::span<const float>, double)> update_;
  const std::uint64_t rounding_;
  std::span<const float> offered_;
  std::uint64_t steps_ = 0;
};

failure bad(std::string why) {
  return {ec::bad_config, "loop_options: " + std::move(why)};
}

/// The table of the arrays, and the arrays by their names there.
struct described {
  std::vector<state_tensor> parameters;
  std::vector<std::vector<statistic>> statistics;
  std::map<std::string, std::span<float>> arrays;

  status add(state_tensor tensor, std::span<float> values) {
    if (tensor.name.empty() || tensor.name.size() > 1024)
      return bad("the name of an array has 1 to 1024 bytes");
    if (tensor.shape.size() > 64 || tensor.elements() == 0 || tensor.elements() != values.size())
      return bad(tensor.name + " has " + std::to_string(values.size())
                 + " values, and its shape stands for " + std::to_string(tensor.elements()));
    if (!arrays.emplace(tensor.name, values).second)
      return bad("two arrays have the name " + tensor.name);
    return done{};
  }
};

result<described> describe(const loop_options& o) {
  described out;
  if (o.parameters.empty())
    return bad("there are no parameters to train");
  if (!o.update)
    return bad("there is no update");
  if (!std::isfinite(o.learning_rate) || o.learning_rate < 0)
    return bad("learning_rate must be finite and not negative");
  for (const auto& p : o.parameters) {
    state_tensor tensor{p.name, p.shape, state_tensor::kind::parameter};
    WAGGLE_TRY(added, out.add(tensor, p.values));
    out.parameters.push_back(tensor);
    auto& rows = out.statistics.emplace_back();
    for (const auto& s : p.statistics) {
      tensor.name = s.name + "/" + p.name;
      WAGGLE_TRY(added, out.add(tensor, s.values));
      rows.push_back({s.name,
                      s.never_negative ? state_tensor::kind::square : state_tensor::kind::statistic,
                      p.shape});
    }
  }
  return out;
}

} // namespace

struct loop::impl {
  impl(std::shared_ptr<swarm_session> in, std::shared_ptr<loop_port> to, array_model arrays)
    : session(std::move(in)), port(std::move(to)), model(std::move(arrays)),
      terms(port->tensors().indices_of({state_tensor::kind::parameter}).size(),
            port->tensors().numbers()),
      term_values(static_cast<std::size_t>(port->tensors().term_count())) {}

  std::shared_ptr<swarm_session> session;
  std::shared_ptr<loop_port> port;
  array_model model;
  update_terms terms; // of our next update
  std::vector<float> term_values;
  int exceptions = std::uncaught_exceptions();

  /// If the loop owns the rate: otherwise it has no wish.
  void wish(double rate) {
    if (session->given().learning_rate == rate_owner::optimizer)
      std::ranges::fill(terms.numbers, rate);
    if (!term_values.empty())
      terms.write(term_values);
  }
};

loop::loop(std::unique_ptr<impl> parts) : impl_(std::move(parts)) {}
loop::loop(loop&&) noexcept = default;

loop::~loop() {
  if (impl_)
    impl_->session->stop(impl_->model, std::uncaught_exceptions() > impl_->exceptions);
}

result<loop> loop::start(const swarm& in, loop_options options) {
  WAGGLE_TRY(arrays, describe(options));
  const auto& session = in.shared_session();
  if (session->place() != update_place::module)
    return bad("offload-optimizer and delay-optimizer-step are for waggle::optimizer");
  std::vector<float> left_out(arrays->parameters.size());
  arrays->arrays.emplace(left_out_name, left_out);
  auto table =
    table_of(std::move(arrays->parameters), arrays->statistics, {}, session->settles() ? 1 : 0);
  std::vector<std::span<float>> tensors;
  for (const auto& tensor : table.tensors())
    tensors.push_back(arrays->arrays.at(tensor.name));
  optimizer_identity optimizer{.kind = options.optimizer};
  auto schema = schema_of(table, optimizer, session->model_function());
  if (session->use_of_gradients() == gradient_use::in_place)
    return bad(
      "reuse-grad-buffers is for waggle::optimizer, which knows when a gradient is cleared");
  auto port = std::make_shared<loop_port>(std::move(table), schema);
  auto made = std::make_unique<impl>(session, port,
                                     array_model{std::move(tensors), std::move(left_out),
                                                 std::move(options.update), options.rounding});
  made->wish(options.learning_rate);
  if (auto started = session->start(port, made->model, optimizer, options.learning_rate, {});
      !started)
    return in_members(started.error());
  return loop{std::move(made)};
}

step_outcome loop::step(std::span<const float> gradient, std::uint64_t samples,
                        std::optional<double> loss) {
  auto& m = *impl_;
  if (gradient.size() != m.port->tensors().parameter_count())
    throw std::invalid_argument{"the gradient has " + std::to_string(gradient.size())
                                + " values, and the parameters have "
                                + std::to_string(m.port->tensors().parameter_count())};
  m.session->check_samples(samples);
  if (m.session->was_over())
    return step_outcome::finished;
  micro_step pass{loss.value_or(std::numeric_limits<double>::quiet_NaN()), samples};
  pass.finite = std::isfinite(loss.value_or(0));
  m.model.offer(gradient);
  const offered_tensor all[]{{gradient.data(), gradient.size()},
                             {m.term_values.data(), m.term_values.size()}};
  return m.session->offer(all, pass, [&m] { return m.session->over(); });
}

void loop::wish(double rate) {
  if (!std::isfinite(rate) || rate < 0)
    throw std::invalid_argument{"a learning rate is finite and not negative"};
  impl_->wish(rate);
}

void loop::keep(std::string bytes) {
  impl_->port->keep(std::move(bytes));
}

std::string loop::kept() {
  auto& m = *impl_;
  m.port->await_pass(m.model, [&m] { return m.session->over(); });
  return m.port->kept();
}

} // namespace waggle
