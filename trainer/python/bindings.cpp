// The extension waggle._waggle, which trainer/python/waggle wraps. It knows buffers, numbers and
// text: no type of torch or numpy.

#include <array>
#include <chrono>
#include <set>
#include <stdexcept>
#include <tuple>

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include "runtime/config/options.hpp"
#include "runtime/core/nearest.hpp"
#include "runtime/core/version.hpp"
#include "runtime/crypto/digest.hpp"
#include "runtime/training/strategy.hpp"
#include "trainer/python/gil.hpp"
#include "trainer/python/log_lines.hpp"
#include "trainer/python/owned_descriptors.hpp"
#include "trainer/python/python_loop.hpp"
#include "trainer/python/python_node.hpp"

namespace {

namespace py = pybind11;
using namespace waggle;
using python::log_lines;
using python::python_loop;

/// Sets a member if the dictionary has an entry of its name.
template <class T>
void take(const py::dict& from, const char* name, T& to) {
  if (from.contains(name))
    to = from[name].cast<T>();
}

swarm_options options_from(const py::dict& from) {
  swarm_options o;
  take(from, "run", o.run);
  take(from, "swarm_key", o.swarm_key);
  take(from, "members", o.members);
  take(from, "members_list", o.members_list);
  take(from, "initial_peers", o.initial_peers);
  take(from, "listen", o.listen);
  take(from, "announce", o.announce);
  take(from, "data_dir", o.data_dir);
  take(from, "log_level", o.log_level);
  take(from, "strategy", o.strategy);
  take(from, "target_batch_size", o.target_batch_size);
  take(from, "epochs", o.max_epochs);
  take(from, "model", o.model);
  take(from, "data", o.data);
  take(from, "schedule", o.schedule);
  if (from.contains("join_timeout"))
    o.join_timeout = std::chrono::milliseconds{from["join_timeout"].cast<std::int64_t>()};
  take(from, "start_alone", o.start_alone);
  take(from, "resume", o.resume);
  take(from, "more", o.more);
  bool of_run = false;
  take(from, "rate_of_run", of_run);
  o.learning_rate = of_run ? rate_owner::run : rate_owner::optimizer;
  return o;
}

using named_shapes = std::vector<std::pair<std::string, tensor_shape>>;

/// A name, a shape, and whether it counts (state_tensor::kind::counter).
using buffer_rows = std::vector<std::tuple<std::string, tensor_shape, bool>>;

/// A name, a shape, and whether its values are never negative.
using statistic_rows = std::vector<std::vector<std::tuple<std::string, tensor_shape, bool>>>;

optimizer_identity identity_from(const std::string& kind, const py::dict& numbers) {
  optimizer_identity id{.kind = kind};
  take(numbers, "weight_decay", id.weight_decay);
  take(numbers, "decay_vectors", id.decay_vectors);
  for (const auto& hyper : hyper_parameters())
    if (py::str name{std::string{hyper.name}}; numbers.contains(name))
      hyper.set(id, numbers[name].cast<double>());
  return id;
}

/// What peers exchange of a loop. Throws std::invalid_argument.
state_table table_from(const named_shapes& parameters, const statistic_rows& statistics,
                       const buffer_rows& buffers, std::size_t numbers) {
  if (parameters.empty())
    throw std::invalid_argument{"there are no parameters to train"};
  if (statistics.size() != parameters.size())
    throw std::invalid_argument{"there must be a list of statistics for each parameter"};
  std::set<std::string> names;
  auto checked = [&names](state_tensor tensor) {
    if (tensor.name.empty() || tensor.name.size() > 1024)
      throw std::invalid_argument{"the name of a tensor has 1 to 1024 bytes"};
    if (!names.insert(tensor.name).second)
      throw std::invalid_argument{"two tensors have the name " + tensor.name};
    if (tensor.shape.size() > 64 || tensor.elements() == 0)
      throw std::invalid_argument{"tensor " + tensor.name + " has no values, or too many"};
    return tensor;
  };
  using kind = state_tensor::kind;
  std::vector<state_tensor> of_module;
  std::vector<std::vector<statistic>> of_optimizer;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    of_module.push_back(checked({parameters[i].first, parameters[i].second, kind::parameter}));
    auto& kept = of_optimizer.emplace_back();
    for (const auto& [name, shape, never_negative] : statistics[i]) {
      kept.push_back({name, never_negative ? kind::square : kind::statistic, shape});
      (void)checked({name + "/" + parameters[i].first, shape, kept.back().what});
    }
  }
  std::vector<state_tensor> others;
  for (const auto& [name, shape, counts] : buffers) {
    others.push_back(checked({name, shape, counts ? kind::counter : kind::buffer}));
    if (counts && others.back().elements() > whole_run_max)
      throw std::invalid_argument{"buffer " + name + " has more whole numbers than the "
                                  + std::to_string(whole_run_max / exact_values)
                                  + " that peers exchange: register it with persistent=False"};
  }
  return table_of(std::move(of_module), of_optimizer, std::move(others), numbers);
}

void start(python_loop& loop, py::object model, const py::dict& options,
           const named_shapes& parameters, const statistic_rows& statistics,
           const buffer_rows& buffers, const std::string& optimizer, const py::dict& numbers,
           std::size_t settled, double learning_rate, const std::string& rate_ratios,
           const std::optional<std::vector<std::pair<std::string, py::bytes>>>& frozen,
           const std::string& rounds, bool on_device, bool hears_gradients) {
  frozen_tensors compared;
  if (frozen) {
    compared.emplace();
    for (const auto& [name, of] : *frozen)
      compared->push_back({name, sha256(std::string{of})});
  }
  loop.start(std::move(model), options_from(options),
             table_from(parameters, statistics, buffers, settled),
             identity_from(optimizer, numbers), learning_rate, rate_ratios, compared, rounds,
             on_device, hears_gradients);
}

std::string in_python(std::string_view sentence) {
  return as_written(sentence, option_writer::python_loop);
}

py::dict dict_of(const swarm_status& s) {
  py::dict out;
  out["epoch"] = s.epoch;
  out["finished"] = s.finished;
  out["group_size"] = s.group_size;
  out["samples_offered"] = s.samples_offered;
  out["samples_used"] = s.samples_used;
  out["samples_dropped"] = s.samples_dropped;
  out["samples_pending"] = s.samples_pending;
  out["state_downloads"] = s.state_downloads;
  out["rounds"] = s.rounds;
  out["waiting_for"] = in_python(s.waiting_for);
  out["loss"] = s.loss;
  out["strategy"] = py::none();
  if (const auto& at = s.strategy)
    out["strategy"] =
      py::make_tuple(at->name, at->epoch, at->epochs, at->skips, at->wait, at->loss, at->best_loss);
  out["mean_age"] = s.mean_age;
  out["parameters"] = to_string(s.parameters);
  py::list passes;
  for (const auto& each : s.passes)
    passes.append(py::make_tuple(each.pass, each.once, each.twice, each.never));
  out["passes"] = passes;
  return out;
}

/// The names, shapes and signs of the statistics that an optimizer of the table keeps for a
/// parameter, in order.
std::vector<std::tuple<std::string, tensor_shape, bool>>
known_statistics(const std::string& kind, const py::dict& numbers, const tensor_shape& shape) {
  std::vector<std::tuple<std::string, tensor_shape, bool>> out;
  if (const auto* row = find_optimizer(kind))
    for (const auto& s : row->statistics(identity_from(kind, numbers), shape))
      out.emplace_back(s.name, s.shape, s.what == state_tensor::kind::square);
  return out;
}

/// The names of the numbers that rounds settle of an optimizer of the table; of others only the
/// rate is known here.
std::vector<std::string> settled_names(const std::string& kind) {
  const auto* row = find_optimizer(kind);
  if (row == nullptr)
    return {"lr"};
  auto names = settled_numbers(*row);
  return {names.begin(), names.end()};
}

/// Of each option of `waggle`: its name as an argument, its group ("join" for those of
/// waggle.join), the name of its value, and what to do instead if loops do not have it.
std::vector<std::array<std::string, 4>> options() {
  std::vector<std::array<std::string, 4>> out;
  for (const auto& option : option_table()) {
    const auto& [member, instead, here] = option.loops;
    bool of_join = !member.empty() && !option.agreed; // of this peer only
    out.push_back({in_python("--" + option.name), of_join ? "join" : option.group,
                   option.value_name, instead.empty() ? here : instead});
  }
  return out;
}

/// The options in a run file, by their names as arguments. Throws ValueError with a sentence.
std::map<std::string, std::string> run_file(const std::string& path) {
  auto file = from_file(path);
  if (!file)
    throw std::invalid_argument{file.error().detail};
  std::map<std::string, std::string> out;
  for (const auto& [name, value] : *file)
    if (find_option(name)->loops.instead.empty())
      out[name == "run-id" ? "run" : in_python("--" + name)] = value.value;
  return out;
}

py::object error_type; // waggle.Error; lives as long as the process

void translate(std::exception_ptr thrown) {
  try {
    if (thrown)
      std::rethrow_exception(thrown);
  } catch (const swarm_error& e) {
    auto instance = error_type(in_python(e.what()));
    instance.attr("code") = std::string{to_string(e.code())};
    PyErr_SetObject(error_type.ptr(), instance.ptr());
  } catch (const std::invalid_argument& e) {
    PyErr_SetString(PyExc_ValueError, in_python(e.what()).c_str());
  }
}

/// Whether a strategy of the table does what `Asks` asks.
template <auto Asks>
bool does(const std::string& strategy) {
  const auto* row = find_strategy(strategy);
  return row != nullptr && (row->*Asks)();
}

void bind_functions(py::module_& m) {
  m.def("end_program", python::end_program);
  m.def("check_notice", python::check_notice, py::arg("within"));
  m.def("options", options);
  m.def("run_file", run_file, py::arg("path"));
  m.def("nearest", nearest, py::arg("wrong"), py::arg("names"));
  m.def("steps_each_pass", does<&strategy_row::steps_each_pass>, py::arg("strategy"));
  m.def("counts_steps", does<&strategy_row::counts_steps>, py::arg("strategy"));
  m.def(
    "sends_in_buckets",
    [](const std::string& strategy) {
      auto choice = strategy_choice::parse(strategy);
      return choice && choice->make({}).averages.in_buckets;
    },
    py::arg("strategy"));
  m.def("settled_numbers", settled_names, py::arg("optimizer"));
  m.def("known_statistics", known_statistics, py::arg("optimizer"), py::arg("numbers"),
        py::arg("shape"));
}

void bind_peer(py::module_& m) {
  py::class_<python_loop>(m, "Peer")
    .def(py::init([](const py::dict& options, std::shared_ptr<log_lines> log) {
           auto given = options_from(options);
           if (log)
             given.around.log = python::log_to(std::move(log));
           return std::make_unique<python_loop>(given);
         }),
         py::arg("options"), py::arg("log") = py::none())
    .def("start", start, py::arg("model"), py::arg("options"), py::arg("parameters"),
         py::arg("statistics"), py::arg("buffers"), py::arg("optimizer"), py::arg("numbers"),
         py::arg("settled"), py::arg("learning_rate"), py::arg("rate_ratios"), py::arg("frozen"),
         py::arg("rounds") = "", py::arg("on_device") = false, py::arg("hears_gradients") = false)
    .def("deal", &python_loop::deal, py::arg("samples"), py::arg("passes"))
    .def("begin_shards", &python_loop::begin_shards)
    .def("next_shards", &python_loop::next_shards, py::arg("most"))
    .def_property_readonly("passes_complete", &python_loop::passes_complete)
    .def("gradient", &python_loop::gradient, py::keep_alive<0, 1>())
    .def("wish", &python_loop::wish, py::arg("rate"))
    .def(
      "offer",
      [](python_loop& loop, std::uint64_t samples, std::optional<double> loss,
         const std::optional<py::list>& addresses, std::uint64_t passes, std::string written,
         bool finite, std::uint64_t claims, double scale) {
        return std::string{to_string(
          loop.offer(samples, loss, addresses, passes, std::move(written), finite, claims, scale))};
      },
      py::arg("samples"), py::arg("loss"), py::arg("addresses") = py::none(), py::arg("passes") = 1,
      py::arg("written") = "", py::arg("finite") = true, py::arg("claims") = 0,
      py::arg("scale") = 0.0)
    .def("computed", &python_loop::computed, py::arg("parameter"), py::arg("address"),
         py::arg("samples"))
    .def("discard_pass", &python_loop::discard_pass)
    .def_property_readonly("samples_early", &python_loop::samples_early)
    .def("keep", &python_loop::keep, py::arg("what"))
    .def("kept", &python_loop::kept)
    .def_property_readonly("epoch", &python_loop::epoch)
    .def_property_readonly("loss_scale", &python_loop::loss_scale)
    .def("show_shared", &python_loop::show_shared)
    .def("show_own", &python_loop::show_own)
    .def("status", [](python_loop& loop) { return dict_of(loop.status()); })
    .def(
      "show_ranks",
      [](const python_loop& loop, const std::vector<std::tuple<std::string, double, double>>& all) {
        std::vector<rank_pace> ranks;
        for (const auto& [device, seconds, pass_seconds] : all)
          ranks.push_back({device, seconds, pass_seconds});
        loop.show_ranks(std::move(ranks));
      },
      py::arg("all"))
    .def("notice", &python_loop::notice, py::arg("within"))
    .def("leave", &python_loop::leave, py::arg("in_a_hurry"))
    .def_property_readonly("left", &python_loop::left)
    .def_property_readonly("adds_up", &python_loop::adds_up)
    .def_property_readonly("address", [](const python_loop& loop) { return loop.where().address; })
    .def_property_readonly("addresses",
                           [](const python_loop& loop) { return loop.where().addresses; })
    .def_property_readonly("id", [](const python_loop& loop) { return loop.where().id; })
    .def_property_readonly("data_dir",
                           [](const python_loop& loop) { return loop.where().data_dir; });
}

} // namespace

PYBIND11_MODULE(_waggle, m) {
  m.doc() = "The peer of a training loop, without torch. Use the module waggle.";
  error_type = py::reinterpret_steal<py::object>(PyErr_NewExceptionWithDoc(
    "waggle.Error",
    "The run or this peer refuses to go on. `code` names the reason: agreement_mismatch (the other "
    "peers have another optimizer, model or option; the text names both values), shutting_down "
    "(this "
    "peer has left or ended), schema_mismatch (a parameter was added, moved or cast), not_owner "
    "(another thread or a forked process), not_ready.",
    PyExc_RuntimeError, nullptr));
  error_type.attr("code") = ""; // each error has its own
  error_type.inc_ref();         // the module may be destroyed after the interpreter's types
  m.attr("Error") = error_type;
  py::register_exception_translator(translate);
  m.attr("__version__") = version;
  close_descriptors_after_fork();

  bind_functions(m);
  py::class_<log_lines, std::shared_ptr<log_lines>>(m, "LogLines")
    .def(py::init())
    .def("take", &log_lines::take)
    .def("end", &log_lines::end);

  python::bind_nodes(m);
  bind_peer(m);
}
