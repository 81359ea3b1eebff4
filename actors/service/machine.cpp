#include "actors/service/machine.hpp"

#include <algorithm>

#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>

#include "runtime/core/huge_pages.hpp"

namespace waggle {

namespace {

class function_sink final : public spdlog::sinks::base_sink<std::mutex> {
public:
  explicit function_sink(std::function<void(log_level, std::string_view)> to)
    : to_(std::move(to)) {}

private:
  void sink_it_(const spdlog::details::log_msg& what) override {
    // Lines may quote bytes from the network, which must not look like two lines.
    std::string text{what.payload.data(), what.payload.size()};
    std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
    auto level = what.level >= spdlog::level::err    ? log_level::error
                 : what.level == spdlog::level::warn ? log_level::warn
                 : what.level == spdlog::level::info ? log_level::info
                                                     : log_level::debug;
    to_(level, text);
  }
  void flush_() override {}

  const std::function<void(log_level, std::string_view)> to_;
};

} // namespace

own_system_config::own_system_config() {
  set("scheduler.policy", caf::atom("sharing"));
  set("scheduler.max-threads", std::size_t{2});
  set("scheduler.max-throughput", std::size_t{64});
}

std::shared_ptr<spdlog::logger> logger_to(std::function<void(log_level, std::string_view)> to,
                                          const std::string& level) {
  if (!to)
    return nullptr;
  auto log =
    std::make_shared<spdlog::logger>("waggle", std::make_shared<function_sink>(std::move(to)));
  log->set_level(spdlog::level::from_str(level));
  return log;
}

std::shared_ptr<std::pmr::memory_resource>
vector_memory(const std::shared_ptr<net::shared_arena>& arena) {
  if (arena)
    return std::make_shared<net::arena_resource>(arena);
  return std::make_shared<huge_page_resource>();
}

node_dependencies machine_dependencies(const environment& around,
                                       std::shared_ptr<const identity> self,
                                       std::shared_ptr<spdlog::logger> log, std::string run_id,
                                       const std::filesystem::path& folder,
                                       net::tcp_transport_config tcp,
                                       std::function<void(net::net_events&)> watch) {
  node_dependencies out;
  out.self = tcp.self = std::move(self);
  out.wall = around.clock ? around.clock : std::make_shared<system_wall_clock>();
  out.verifier = tcp.verifier = make_caching_verifier(4096);
  out.registry = around.registry ? around.registry : std::make_shared<prometheus::Registry>();
  out.log = std::move(log);
  if (!tcp.encrypts)
    out.log->warn(
      "links of this peer are not encrypted (--encrypt never): whoever reads the network "
      "has the model and all that is exchanged");
  tcp.arena = tcp.shared_memory ? net::shared_arena::make() : nullptr;
  out.memory = vector_memory(tcp.arena);
  out.machine = std::make_shared<machine_watch>([folder] { return read_machine(folder); });
  if (!folder.empty()) {
    out.files = make_system_disk();
    out.make_store = [files = out.files, folder] { return files->make_store(folder); };
  }
  tcp.run_id = std::move(run_id);
  out.make_transport = [tcp = std::move(tcp), watch = std::move(watch)](transport_request request) {
    auto config = tcp;
    config.record = std::move(request.record);
    config.http = std::move(request.http);
    config.events = std::move(request.events);
    config.agreement = std::move(request.agreement);
    config.clock = std::move(request.clock);
    config.clocks = request.clocks;
    if (watch)
      watch(config.events);
    return net::make_tcp_transport(std::move(config));
  };
  return out;
}

} // namespace waggle
