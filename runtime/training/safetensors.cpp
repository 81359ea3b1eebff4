#include "runtime/training/safetensors.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "runtime/core/byte_io.hpp"

namespace waggle {

std::string safetensors_file(std::vector<named_values> tensors, epoch_id epoch) {
  std::ranges::sort(tensors, [](const auto& a, const auto& b) { return a.name < b.name; });
  using json = nlohmann::ordered_json;
  json header{{"__metadata__", {{"format", "pt"}, {"epoch", to_string(epoch)}}}};
  std::uint64_t at = 0;
  for (const auto& t : tensors) {
    auto end = at + t.values.size();
    header[t.name] = {{"dtype", "F32"}, {"shape", t.shape}, {"data_offsets", {at, end}}};
    at = end;
  }
  auto text = header.dump(-1, ' ', false, json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  auto file = byte_writer{}.put(std::uint64_t{text.size()}).take() + text;
  file.reserve(file.size() + at);
  for (const auto& t : tensors)
    file += as_string_view(t.values);
  return file;
}

result<checkpoint_weights> weights_in(byte_span image) {
  auto state = decode_state(image);
  if (!state)
    return state.error();
  auto table = read_state_table(state->learner);
  if (!table)
    return table.error();
  if (auto good = table->check(state->learner, state->schema); !good)
    return good.error();
  checkpoint_weights out{state->epoch, std::move(*table), {}};
  for (auto i : out.table.indices_of(
         {state_tensor::kind::parameter, state_tensor::kind::buffer, state_tensor::kind::counter}))
    out.tensors.push_back(
      {out.table[i].name, out.table[i].shape, out.table.values_in(state->learner, i)});
  return out;
}

} // namespace waggle
