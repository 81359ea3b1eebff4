#include "runtime/codec/averaged_tensors.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>

#include "runtime/codec/exact_number.hpp"
#include "runtime/codec/half.hpp"

namespace waggle {

namespace {

constexpr std::string_view type_names[]{"float32", "float64", "float16", "bfloat16"};
constexpr std::uint64_t elements_max = std::uint64_t{1} << 40U;
constexpr double float64_max = 3.4e38;
constexpr std::uint64_t short_run = 1U << 16U; // numbers; 768 KiB

/// What a tensor of this type travels as if its codec would be `none`.
codec_id codec_of(tensor_type type) {
  constexpr codec_id codecs[]{codec_id::none, codec_id::mean64, codec_id::float16,
                              codec_id::bfloat16};
  return codecs[static_cast<std::size_t>(type)];
}

double value_at(const averaged_tensor& tensor, std::uint64_t i) {
  switch (tensor.type) {
    case tensor_type::float32:
      return static_cast<const float*>(tensor.values)[i];
    case tensor_type::float64:
      return static_cast<const double*>(tensor.values)[i];
    case tensor_type::float16:
      return codecs::from_half(static_cast<const std::uint16_t*>(tensor.values)[i]);
    case tensor_type::bfloat16:
      return std::bit_cast<float>(
        static_cast<std::uint32_t>(static_cast<const std::uint16_t*>(tensor.values)[i]) << 16U);
  }
  return 0;
}

void set_value(const averaged_tensor& tensor, std::uint64_t i, double value) {
  switch (tensor.type) {
    case tensor_type::float32:
      static_cast<float*>(tensor.values)[i] = static_cast<float>(value);
      break;
    case tensor_type::float64:
      static_cast<double*>(tensor.values)[i] = value;
      break;
    case tensor_type::float16:
      static_cast<std::uint16_t*>(tensor.values)[i] = codecs::to_half(codecs::to_odd(value));
      break;
    case tensor_type::bfloat16:
      static_cast<std::uint16_t*>(tensor.values)[i] = codecs::to_bfloat(codecs::to_odd(value));
      break;
  }
}

double number_at(std::span<const float> values, std::uint64_t i) {
  return read_exact(values.subspan(exact_values * i).first<exact_values>()).value_or(0);
}

/// Their number: none.
std::size_t first_out_of_range(std::span<const double> numbers) {
  auto is_out = [](double x) { return !(std::fabs(x) < float64_max); };
  // In pieces, whose loop has no exit.
  constexpr std::size_t piece = 4096;
  for (std::size_t at = 0; at < numbers.size(); at += piece) {
    auto some = numbers.subspan(at, std::min(piece, numbers.size() - at));
    if (std::ranges::count_if(some, is_out) > 0)
      return at + static_cast<std::size_t>(std::ranges::find_if(some, is_out) - some.begin());
  }
  return numbers.size();
}

/// "'w' float32 [2, 3]"
std::string line_of(const averaged_tensor& tensor) {
  auto line = "'" + tensor.name + "' " + std::string{to_string(tensor.type)} + " [";
  for (std::size_t i = 0; i < tensor.shape.size(); ++i)
    line += (i == 0 ? "" : ", ") + std::to_string(tensor.shape[i]);
  return line + "]";
}

} // namespace

std::string_view to_string(tensor_type type) {
  return type_names[static_cast<std::size_t>(type)];
}

std::size_t size_of(tensor_type type) {
  constexpr std::size_t sizes[]{4, 8, 2, 2};
  return sizes[static_cast<std::size_t>(type)];
}

std::uint64_t averaged_tensor::elements() const {
  std::uint64_t all = 1;
  for (auto n : shape) {
    if (n == 0)
      return 0;
    all = n > elements_max / all ? elements_max : all * n;
  }
  return all;
}

result<tensor_vector> tensor_vector::make(std::vector<averaged_tensor> all,
                                          const codec_choice& choice, bool auxiliary) {
  std::set<std::string_view> names;
  std::vector<codec_id> chosen;
  for (const auto& tensor : all) {
    if (tensor.name.empty() || tensor.name.size() > 1024
        || tensor.name.find('\n') != std::string::npos)
      return failure{ec::bad_config, "the name of a tensor has 1 to 1024 bytes, and no line break"};
    if (!names.insert(tensor.name).second)
      return failure{ec::bad_config, "two tensors have the name '" + tensor.name + "'"};
    if (tensor.elements() >= elements_max)
      return failure{ec::wrong_shape, "tensor '" + tensor.name + "' has too many values"};
    if (tensor.values == nullptr && tensor.elements() > 0 && !auxiliary)
      return failure{ec::wrong_shape, "tensor '" + tensor.name + "' has no values"};
    auto codec =
      choice.choose({tensor.name, tensor.elements(), tensor_role::unspecified}, chosen.size());
    if (!codec)
      return codec.error();
    chosen.push_back(*codec == codec_id::none ? codec_of(tensor.type) : *codec);
  }
  tensor_vector out{std::move(all)};
  for (std::size_t i = 0; i < out.all_.size(); ++i)
    if (auto count = out.all_[i].elements(); count > 0)
      out.places_.push_back({i, count, chosen[i] == codec_id::mean64});
  // Those of a codec one after another: the fewer runs, the fewer and larger parts.
  std::ranges::stable_sort(out.places_, {}, [&](const place& p) { return chosen[p.tensor]; });
  // Each run of numbers is one part, so they are short, unless that makes too many.
  std::uint64_t numbers = 0;
  for (const auto& each : out.places_)
    numbers += each.exact ? each.count : 0;
  auto longest = exact_values * std::max(short_run, numbers / (codec_runs_max / 2) + 1);
  longest = std::min(longest, whole_run_max);
  auto append = [&plan = out.codecs_, longest](codec_id codec, std::uint64_t elements) {
    bool whole = codec == codec_id::mean64;
    while (elements > 0) {
      bool fits =
        !plan.empty() && plan.back().codec == codec && (!whole || plan.back().elements < longest);
      if (!fits)
        plan.push_back({0, codec});
      auto next = whole ? std::min(elements, longest - plan.back().elements) : elements;
      plan.back().elements += next;
      elements -= next;
    }
  };
  for (const auto& each : out.places_)
    append(chosen[each.tensor], each.count * (each.exact ? exact_values : 1));
  if (out.codecs_.empty())
    return failure{ec::wrong_shape, "there is nothing to average: no tensor has values"};
  if (out.codecs_.size() > codec_runs_max)
    return failure{ec::oversize, "the tensors have too many values in float64"};
  return out;
}

std::string tensor_vector::description() const {
  std::string all;
  for (const auto& tensor : all_)
    all += line_of(tensor) + "\n";
  return all;
}

status tensor_vector::read(std::span<float> out) const {
  for (const auto& [index, count, exact] : places_) {
    const auto& tensor = all_[index];
    auto to = out.first(count * (exact ? exact_values : 1));
    out = out.subspan(to.size());
    if (tensor.type == tensor_type::float32) {
      std::memcpy(to.data(), tensor.values, to.size_bytes());
    } else if (tensor.type == tensor_type::float16) {
      codecs::from_halves(best_instructions(), static_cast<const std::byte*>(tensor.values), count,
                          to.data());
    } else if (tensor.type == tensor_type::float64) {
      std::span numbers{static_cast<const double*>(tensor.values), count};
      if (auto wrong = first_out_of_range(numbers); wrong < count)
        return failure{ec::non_finite, "tensor '" + tensor.name + "' holds "
                                         + std::to_string(numbers[wrong])
                                         + ": a float64 must be finite and below 3.4e38"};
      if (exact)
        write_exact(numbers.data(), count, to.data());
      else
        std::ranges::transform(numbers, to.begin(), [](double x) { return static_cast<float>(x); });
    } else {
      for (std::uint64_t i = 0; i < count; ++i)
        to[i] = static_cast<float>(value_at(tensor, i));
    }
  }
  return done{};
}

void tensor_vector::write(std::span<const float> mean, std::span<const float> sent,
                          double alpha) const {
  for (const auto& [index, count, exact] : places_) {
    const auto& tensor = all_[index];
    auto size = count * (exact ? exact_values : 1);
    auto from = mean.first(size);
    auto own = sent.empty() ? sent : sent.first(size);
    mean = mean.subspan(size);
    sent = sent.empty() ? sent : sent.subspan(size);
    if (alpha == 1 && tensor.type == tensor_type::float32) {
      std::memcpy(tensor.values, from.data(), from.size_bytes());
    } else if (alpha == 1 && tensor.type == tensor_type::float16) {
      codecs::to_halves(best_instructions(), from.data(), count,
                        static_cast<std::byte*>(tensor.values));
    } else if (alpha == 1 && tensor.type == tensor_type::float64 && exact) {
      read_exact(from.data(), count, static_cast<double*>(tensor.values));
    } else {
      for (std::uint64_t i = 0; i < count; ++i) {
        double to = exact ? number_at(from, i) : static_cast<double>(from[i]);
        if (alpha != 1) {
          double had = exact ? number_at(own, i) : static_cast<double>(own[i]);
          to = had + alpha * (to - had);
        }
        set_value(tensor, i, to);
      }
    }
  }
}

std::string tensor_vector::not_finite() const {
  for (const auto& tensor : all_)
    for (std::uint64_t i = 0; i < tensor.elements(); ++i)
      if (!std::isfinite(value_at(tensor, i)))
        return "tensor '" + tensor.name + "' holds NaN or infinite values";
  return {};
}

std::string first_difference(std::string_view here, std::string_view there) {
  for (std::size_t number = 0; here != there; ++number) {
    auto line = [](std::string_view& rest) {
      auto text = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), text.size() + 1));
      return text;
    };
    if (here.empty())
      return "the other has more tensors than " + std::to_string(number);
    if (there.empty())
      return "the other has only " + std::to_string(number) + " tensors";
    auto ours = line(here);
    auto theirs = line(there);
    if (ours != theirs)
      return "tensor " + std::to_string(number) + " is " + std::string{ours} + " here, and "
             + std::string{theirs} + " there";
  }
  return {};
}

} // namespace waggle
