#include "runtime/core/bytes.hpp"

namespace waggle {

std::string to_hex(byte_span bytes) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (auto b : bytes) {
    out.push_back(digits[std::to_integer<unsigned>(b) >> 4U]);
    out.push_back(digits[std::to_integer<unsigned>(b) & 15U]);
  }
  return out;
}

namespace {

int digit_value(char c) {
  if (c >= '0' && c <= '9')
    return c - '0';
  if (c >= 'a' && c <= 'f')
    return c - 'a' + 10;
  if (c >= 'A' && c <= 'F')
    return c - 'A' + 10;
  return -1;
}

} // namespace

std::optional<std::string> from_hex(std::string_view hex) {
  if (hex.size() % 2 != 0)
    return std::nullopt;
  std::string out;
  out.reserve(hex.size() / 2);
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    auto high = digit_value(hex[i]);
    auto low = digit_value(hex[i + 1]);
    if (high < 0 || low < 0)
      return std::nullopt;
    out.push_back(static_cast<char>(high * 16 + low));
  }
  return out;
}

payload copy_to_payload(byte_span bytes) {
  std::shared_ptr<std::byte> data{new std::byte[bytes.size()], std::default_delete<std::byte[]>{}};
  if (!bytes.empty())
    std::memcpy(data.get(), bytes.data(), bytes.size());
  return {std::move(data), bytes.size()};
}

} // namespace waggle
