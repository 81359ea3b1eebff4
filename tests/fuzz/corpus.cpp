// fuzz_corpus FOLDER: a few valid inputs for each fuzz target to start from.

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "runtime/codec/codec.hpp"
#include "runtime/net/framing.hpp"
#include "runtime/net/handshake.hpp"
#include "runtime/progress/progress_ledger.hpp"
#include "runtime/training/training_state.hpp"
#include "runtime/wire/fields.hpp"
#include "tests/runtime/wire/samples.hpp"

using namespace waggle;

namespace {

void write(const std::filesystem::path& folder, const std::string& name, std::string_view bytes) {
  std::filesystem::create_directories(folder);
  std::ofstream{folder / name, std::ios::binary} << bytes;
}

} // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: fuzz_corpus FOLDER\n");
    return 2;
  }
  std::filesystem::path root{argv[1]};
  for (const auto& s : wire::samples()) {
    std::string bytes(1, s.body_bytes > 0 ? '\1' : '\0');
    write(root / "wire", s.name, bytes + wire::encode(s.what));
  }
  auto self = identity::from_seed(1);
  net::handshake talk{{true,
                       "demo",
                       self,
                       {self->id(), self->key(), {{"10.0.0.1", 7700}}, false},
                       make_plain_verifier(),
                       {},
                       {}}};
  write(root / "handshake", "hello", talk.hello());
  auto frame = net::write_prefix({net::frame_kind::message, 100, 1'000});
  auto hello = net::write_prefix(
    {net::frame_kind::handshake, static_cast<std::uint32_t>(talk.hello().size()), 0});
  write(root / "framing", "message", as_string_view(frame));
  write(root / "framing", "handshake", as_string_view(hello));
  std::string upgrade =
    "GET /peer HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: waggle/1\r\n\r\n";
  write(root / "upgrade", "get", "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  write(root / "upgrade", "upgrade", upgrade + std::string{as_string_view(hello)} + talk.hello());
  proto::Record entry;
  wire::write_record(wire::sample_record(), entry);
  write(root / "record", "record", entry.SerializeAsString());
  proto::Plan plan;
  wire::write_plan(plan_for(4), plan);
  write(root / "record", "plan", plan.SerializeAsString());
  for (auto codec : all_codecs())
    for (std::size_t n : {3U, 500U, 5'000U}) {
      std::vector<float> values(n);
      for (std::size_t i = 0; i < n; ++i)
        values[i] = static_cast<float>(i % 89) - 44.5F;
      std::vector<std::byte> part(encoded_size(codec, n));
      encode(codec, values, part);
      auto name = std::string{to_string(codec)} + "-" + std::to_string(n);
      auto number = static_cast<char>(codec);
      write(root / "codec", name + "-part", std::string(1, number) += as_string_view(part));
      write(root / "codec", name + "-values",
            std::string(1, static_cast<char>(number | 0x40)) +=
            as_string_view(std::as_bytes(std::span{values})));
    }
  write(
    root / "codec", "choice",
    "\x80role:parameter=float16,gradient=(size:1000,float16,uniform8),default=(map:a%2cb=none)");
  progress_report report;
  report.who = {self->id(), self->key(), {{"10.0.0.1", 7700}}, false};
  report.epoch = epoch_id{3};
  report.samples = 100;
  report.samples_per_second = 20;
  report.time = swarm_time_from(1'700'000'000'000'000'000);
  write(root / "progress", "report", encode_progress(report));
  auto state = encode_state({epoch_id{3}, {}, {}, as_byte_span("weights")});
  write(root / "progress", "state", as_string_view(state.view()));
}
