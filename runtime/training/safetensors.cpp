#include "runtime/training/safetensors.hpp"

#include <algorithm>
#include <istream>
#include <optional>

#include <nlohmann/json.hpp>

#include "runtime/core/byte_io.hpp"
#include "runtime/core/try.hpp"

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

namespace {

/// Nothing: these are no numbers.
std::optional<std::vector<std::uint64_t>> numbers_in(const nlohmann::json& object,
                                                     const char* field) {
  std::vector<std::uint64_t> out;
  auto list = object.is_object() ? object.find(field) : object.end();
  if (list == object.end() || !list->is_array())
    return std::nullopt;
  for (const auto& each : *list)
    if (each.is_number_unsigned())
      out.push_back(each.get<std::uint64_t>());
    else
      return std::nullopt;
  return out;
}

} // namespace

result<value_counts> count_values(std::istream& file, std::uint64_t bytes) {
  auto no = [](const std::string& why) { return failure{ec::malformed, why}; };
  std::string prefix(sizeof(std::uint64_t), '\0');
  if (!file.read(prefix.data(), static_cast<std::streamsize>(prefix.size())))
    return no("is truncated, or no file of this format: it has " + std::to_string(bytes)
              + " bytes");
  auto length = byte_reader{prefix}.get<std::uint64_t>();
  if (length > safetensors_header_max)
    return no("says that its header has " + std::to_string(length) + " bytes; at most "
              + std::to_string(safetensors_header_max) + " are read");
  std::string text(static_cast<std::size_t>(length), '\0');
  if (prefix.size() + length > bytes
      || !file.read(text.data(), static_cast<std::streamsize>(length)))
    return no("is truncated within its header");
  auto shallow = [](int depth, auto, const auto&) { return depth <= 3; };
  auto header = nlohmann::json::parse(text, shallow, false);
  if (!header.is_object())
    return no("has a header that is no JSON");
  auto of_values = bytes - prefix.size() - length;
  value_counts out;
  for (const auto& [name, tensor] : header.items()) {
    if (name == "__metadata__")
      continue;
    auto shape = numbers_in(tensor, "shape");
    auto place = numbers_in(tensor, "data_offsets");
    auto type = tensor.is_object() ? tensor.find("dtype") : tensor.end();
    bool sound = shape && place && place->size() == 2 && place->at(0) <= place->at(1)
                 && type != tensor.end() && type->is_string();
    if (sound && place->at(1) > of_values)
      return no("is truncated: tensor " + nlohmann::json(name).dump() + " ends behind it");
    std::uint64_t count = 1;
    for (std::size_t i = 0; sound && i < shape->size(); ++i) {
      auto times = shape->at(i); // no type has less than a bit
      sound = times == 0 || count <= 8 * (place->at(1) - place->at(0)) / times;
      count *= sound ? times : 0;
    }
    if (!sound)
      return no("does not say where, and of which type and shape, tensor "
                + nlohmann::json(name).dump() + " is");
    auto of_type = type->get<std::string>();
    (of_type.starts_with("F") || of_type.starts_with("BF") ? out.floats : out.others) += count;
  }
  return out;
}

result<checkpoint_weights> weights_in(byte_span image) {
  WAGGLE_TRY(state, decode_state(image));
  WAGGLE_TRY(table, read_state_table(state->learner));
  WAGGLE_TRY(good, table->check(state->learner, state->schema));
  checkpoint_weights out{state->epoch, std::move(*table), {}};
  for (auto i : out.table.indices_of(
         {state_tensor::kind::parameter, state_tensor::kind::buffer, state_tensor::kind::counter}))
    out.tensors.push_back(
      {out.table[i].name, out.table[i].shape, out.table.values_in(state->learner, i)});
  return out;
}

} // namespace waggle
