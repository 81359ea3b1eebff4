#include "runtime/training/safetensors.hpp"

#include <algorithm>

#include "runtime/core/byte_io.hpp"

namespace waggle {

namespace {

/// A JSON text.
std::string quoted(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out = "\"";
  for (char c : text) {
    auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += '\\';
    if (code < 0x20) {
      out += "\\u00";
      out += digits[code / 16];
      out += digits[code % 16];
    } else {
      out += c;
    }
  }
  return out + "\"";
}

} // namespace

std::string safetensors_file(std::vector<named_values> tensors, epoch_id epoch) {
  std::sort(tensors.begin(), tensors.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  auto header = R"({"__metadata__":{"format":"pt","epoch":")" + to_string(epoch) + "\"}";
  std::uint64_t at = 0;
  for (const auto& t : tensors) {
    header += "," + quoted(t.name) + R"(:{"dtype":"F32","shape":[)";
    for (std::size_t i = 0; i < t.shape.size(); ++i)
      header += (i == 0 ? "" : ",") + std::to_string(t.shape[i]);
    header += R"(],"data_offsets":[)" + std::to_string(at) + ",";
    at += t.values.size();
    header += std::to_string(at) + "]}";
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  auto file = byte_writer{}.put(std::uint64_t{header.size()}).take() + header;
  file.reserve(file.size() + at);
  for (const auto& t : tensors)
    file += as_string_view(t.values);
  return file;
}

std::vector<named_values> weights_in(const state_table& table, byte_span image) {
  std::vector<named_values> out;
  for (std::size_t i = 0; i < table.size(); ++i)
    if (const auto& t = table[i];
        t.what == state_tensor::kind::parameter || t.what == state_tensor::kind::buffer)
      out.push_back({t.name, t.shape, table.values_in(image, i)});
  return out;
}

} // namespace waggle
