// fuzz_corpus FOLDER: writes a few valid inputs for each fuzz target, as a seed corpus.

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "runtime/codec/codec.hpp"
#include "runtime/crypto/member_list.hpp"
#include "runtime/net/handshake.hpp"
#include "runtime/net/tls_channel.hpp"
#include "runtime/progress/progress_ledger.hpp"
#include "runtime/training/state_table.hpp"
#include "runtime/training/training_state.hpp"
#include "runtime/watch/events.hpp"
#include "runtime/wire/message_fields.hpp"
#include "tests/runtime/net/stream_oracle.hpp"
#include "tests/runtime/wire/samples.hpp"
#include "tests/support/all_codecs.hpp"
#include "tests/support/states.hpp"
#include "waggle_wire.pb.h"

using namespace waggle;

namespace {

void write(const std::filesystem::path& folder, const std::string& name, std::string_view bytes) {
  std::filesystem::create_directories(folder);
  std::ofstream{folder / name, std::ios::binary} << bytes;
}

/// Streams and scripts of frames; fuzz_framing.cpp has the format.
void write_framing(const std::filesystem::path& folder, const std::string& hello) {
  using net::frame_kind;
  auto part = net::frame_bytes(frame_kind::message, "part", std::string(100, 'p'));
  auto ping = net::frame_bytes(frame_kind::message, "ping");
  auto window = net::frame_bytes(frame_kind::window, std::string(8, '\1'));
  auto opening = net::opening_bytes("part", 100);
  auto piece = [](std::size_t n) {
    return net::frame_bytes(frame_kind::slice, "", std::string(n, 's'));
  };
  auto reference = net::frame_bytes(frame_kind::reference, net::write_reference({1, 2, 3, 4}));
  // Settings: a window of 1 KiB; the stream is cut into pieces of up to 20 bytes.
  const std::string dealt_with{"\x04\x06\x14"};
  write(folder, "frames", dealt_with + ping + part + window + reference + part);
  write(folder, "handshake", std::string{"\x02\x06\x14"} + hello + hello + ping);
  write(folder, "slices", dealt_with + opening + piece(60) + ping + window + piece(40) + part);
  write(folder, "too_large", dealt_with + opening + piece(60) + piece(41));
  write(folder, "of_nothing", dealt_with + ping + piece(10));
  write(folder, "two_bodies", dealt_with + opening + piece(10) + opening);
  write(folder, "within", dealt_with + opening + piece(10) + part);
  write(folder, "reference_within", dealt_with + opening + reference);
  write(folder, "never_whole", dealt_with + opening + piece(10) + ping);
  write(folder, "overrun", std::string("\0\3\0", 3) + part + opening + piece(100));
  // Kind, header, body: an opening of 300, slices of 200 and 100 around control frames.
  auto scripted = [](std::initializer_list<int> bytes) {
    std::string out;
    for (auto byte : bytes)
      out.push_back(static_cast<char>(byte));
    return out;
  };
  write(folder, "script_slices",
        scripted({5, 6, 20, 6, 4, 44, 1, 7, 0, 200, 0, 0, 4, 0, 0, 1, 8, 0, 0, 7, 0, 100, 0}));
  write(folder, "script_handshake", scripted({7, 8, 9, 2, 90, 0, 0, 2, 9, 0, 0, 0, 4, 9, 0}));
  write(folder, "script_large_header", scripted({5, 15, 255, 8, 250, 9, 0, 8, 255, 0, 0}));
  write(folder, "script_shifted", scripted({5, 6, 20, 6, 4, 44, 1, 23, 0, 200, 0, 0, 4, 0, 0}));
}

/// A whole image with the tensors that fuzz_state.cpp expects, and one with others.
void write_states(const std::filesystem::path& folder) {
  using kind = state_tensor::kind;
  auto image_of = [](const state_table& table) {
    auto image = table.header({}, 7);
    image.resize(table.image_bytes());
    return image;
  };
  write(folder, "own",
        image_of(state_table{{{"embedding.weight", {4, 3}, kind::parameter},
                              {"scale", {}, kind::parameter},
                              {"exp_avg/scale", {}, kind::statistic},
                              {"exp_avg_sq/scale", {}, kind::square}}}));
  write(folder, "other", image_of(state_table{{{"w", {2, 2, 2}, kind::parameter}}}));
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
                       std::make_shared<const run_secret>("demo"),
                       self,
                       {self->id(), self->key(), {{"10.0.0.1", 7700}}, false},
                       make_plain_verifier(),
                       {},
                       {},
                       {}}};
  write(root / "handshake", "hello", talk.hello());
  auto hello = net::frame_bytes(net::frame_kind::handshake, talk.hello());
  write_framing(root / "framing", hello);
  std::string upgrade =
    "GET /peer HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: waggle/1\r\n\r\n";
  write(root / "upgrade", "get", "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  write(root / "upgrade", "upgrade", upgrade + hello);
  net::tls_channel tls{net::tls_context{*self}, true};
  (void)tls.begin();
  write(root / "tls", "hello", std::string{as_string_view(tls.take_output())});
  net::tls_channel reader{net::tls_context::of_reader(), true};
  (void)reader.begin();
  write(root / "tls", "reader", std::string{as_string_view(reader.take_output())});
  write(root / "members", "list",
        member_list::sign(*identity::from_seed(1), 3, {{self->id(), swarm_time_from(1)}})->bytes());
  write(root / "run_file", "invitation",
        "run-id = \"demo\"\nswarm-key = \"" + inline_text(swarm_key{})
          + "\"\ninitial-peers = \"[::1]:7700\"\n");
  proto::Record entry;
  wire::write(wire::sample_record(), entry);
  write(root / "record", "record", entry.SerializeAsString());
  proto::Plan plan;
  wire::write(plan_for(4), plan);
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
  progress_report report{.who = {self->id(), self->key(), {{"10.0.0.1", 7700}}, false},
                         .epoch = epoch_id{3},
                         .samples = 100,
                         .samples_per_second = 20,
                         .time = swarm_time_from(1'700'000'000'000'000'000)};
  write(root / "progress", "report", encode_progress(report));
  auto state = testing::encode_state({epoch_id{3}, {}, {}, {}, as_byte_span("weights")});
  write(root / "progress", "state", as_string_view(state.view()));
  watch::round_ended round{.outcome = "complete"};
  round.round.bytes[0] = std::byte{1};
  round.began = 1'700'000'000'000;
  round.members.emplace_back();
  write(root / "events", "round",
        "{\"seq\":1," + watch::fields_of(round, {}, swarm_time_from(1'700'000'000'000'000'000))
          + "}\n");
  write_states(root / "state");
  using namespace std::string_literals;
  write(root / "images", "images", "\0\0\10\3\0\0\0\1\0\0\0\2\0\0\0\2abcd"s);
  write(root / "images", "labels", "\0\0\10\1\0\0\0\2\1\11"s);
}
