#include "runtime/codec/codec_choice.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "runtime/core/bytes.hpp"

namespace waggle {

namespace {

constexpr std::array roles_in_order{tensor_role::unspecified, tensor_role::activation,
                                    tensor_role::parameter,   tensor_role::gradient,
                                    tensor_role::optimizer,   tensor_role::buffer};
constexpr std::string_view otherwise_name = "default";

// A run file is written by people: deeper nesting is a mistake.
constexpr int depth_max = 8;

failure wrong(std::string why) {
  return {ec::bad_config, std::move(why)};
}

// -- names in the text form -----------------------------------------------------------------------

constexpr std::string_view special = ",=()%";

/// Escapes bytes with a meaning in the text form, and non-printable ones, as %2C.
std::string escape(std::string_view name) {
  std::string out;
  for (char c : name) {
    bool plain = c > ' ' && c != 0x7f && special.find(c) == std::string_view::npos;
    out += plain ? std::string(1, c) : "%" + to_hex(as_byte_span({&c, 1}));
  }
  return out;
}

result<std::string> unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    auto byte = from_hex(text.substr(i + 1, 2));
    if (!byte || byte->size() != 1)
      return wrong("after % in '" + std::string{text} + "' two hexadecimal digits are needed");
    out += *byte;
    i += 2;
  }
  return out;
}

// -- parsing --------------------------------------------------------------------------------------

/// Splits at the commas outside parentheses. Fails for parentheses that do not match.
result<std::vector<std::string_view>> items_of(std::string_view text) {
  std::vector<std::string_view> items;
  int open = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '(')
      ++open;
    if (text[i] == ')' && --open < 0)
      break;
    if (text[i] == ',' && open == 0) {
      items.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  if (open != 0)
    return wrong("the parentheses of '" + std::string{text} + "' do not match");
  items.push_back(text.substr(begin));
  return items;
}

result<codec_choice> parse(std::string_view text, int depth);

/// An item: a codec, or a choice in parentheses.
result<codec_choice> parse_item(std::string_view item, int depth) {
  if (item.starts_with('(') && item.ends_with(')'))
    return parse(item.substr(1, item.size() - 2), depth + 1);
  auto codec = parse_codec(item);
  if (!codec)
    return codec.error();
  return codec_choice{*codec};
}

result<codec_choice> parse_size(const std::vector<std::string_view>& items, int depth) {
  if (items.size() != 3)
    return wrong("a choice by size is size:THRESHOLD,LESS,GREATER_OR_EQUAL, for example "
                 "size:65536,float16,blockwise8");
  std::uint64_t threshold = 0;
  auto [end, error] =
    std::from_chars(items[0].data(), items[0].data() + items[0].size(), threshold);
  if (error != std::errc{} || end != items[0].data() + items[0].size())
    return wrong("'" + std::string{items[0]} + "' is not a number of values");
  auto less = parse_item(items[1], depth);
  if (!less)
    return less.error();
  auto greater_equal = parse_item(items[2], depth);
  if (!greater_equal)
    return greater_equal.error();
  return codec_choice::by_size(threshold, *less, *greater_equal);
}

/// NAME=CHOICE, …
result<std::map<std::string, codec_choice>> parse_named(const std::vector<std::string_view>& items,
                                                        std::string_view what, int depth) {
  std::map<std::string, codec_choice> named;
  for (auto item : items) {
    auto equals = item.find('=');
    if (equals == std::string_view::npos)
      return wrong("'" + std::string{item} + "' is not " + std::string{what} + "=CODEC");
    auto name = unescape(item.substr(0, equals));
    if (!name)
      return name.error();
    auto choice = parse_item(item.substr(equals + 1), depth);
    if (!choice)
      return choice.error();
    if (!named.emplace(*name, *choice).second)
      return wrong("'" + *name + "' is listed twice");
  }
  return named;
}

result<codec_choice> parse_roles(const std::vector<std::string_view>& items, int depth) {
  auto named = parse_named(items, "ROLE", depth);
  if (!named)
    return named.error();
  codec_choice otherwise;
  std::map<tensor_role, codec_choice> roles;
  for (const auto& entry : *named) {
    const auto& name = entry.first;
    const auto& choice = entry.second;
    auto role = std::find_if(roles_in_order.begin() + 1, roles_in_order.end(),
                             [&](tensor_role r) { return to_string(r) == name; });
    if (name == otherwise_name)
      otherwise = choice;
    else if (role != roles_in_order.end())
      roles.emplace(*role, choice);
    else
      return wrong("'" + name
                   + "' is not a role; there are: activation, parameter, gradient, optimizer, "
                     "buffer, default");
  }
  return codec_choice::by_role(std::move(roles), otherwise);
}

result<codec_choice> parse_list(const std::vector<std::string_view>& items, int depth) {
  std::vector<codec_choice> choices;
  for (auto item : items) {
    auto choice = parse_item(item, depth);
    if (!choice)
      return choice.error();
    choices.push_back(*choice);
  }
  return codec_choice::per_index(std::move(choices));
}

result<codec_choice> parse(std::string_view text, int depth) {
  if (depth > depth_max)
    return wrong("more than " + std::to_string(depth_max) + " choices within each other");
  auto colon = text.find(':');
  auto kind = text.substr(0, colon);
  // A colon after an opening parenthesis or an equals sign belongs to a key.
  if (colon == std::string_view::npos || kind.find_first_of("(=,") != std::string_view::npos) {
    auto one = parse_item(text, depth);
    if (one || text.find_first_of(",=") == std::string_view::npos)
      return one;
    return wrong("'" + std::string{text}
                 + "' does not name a criterion; use size:, role:, list: or "
                   "map:");
  }
  auto items = items_of(text.substr(colon + 1));
  if (!items)
    return items.error();
  if (kind == "size")
    return parse_size(*items, depth);
  if (kind == "role")
    return parse_roles(*items, depth);
  if (kind == "list")
    return parse_list(*items, depth);
  if (kind == "map") {
    auto named = parse_named(*items, "NAME", depth);
    if (!named)
      return named.error();
    return codec_choice::per_key({named->begin(), named->end()});
  }
  return wrong(
    "'" + std::string{kind}
    + ":' is not a kind of choice; there are: CODEC, size:THRESHOLD,LESS,GREATER_OR_EQUAL, "
      "role:ROLE=CODEC,…, list:CODEC,…, map:NAME=CODEC,…, where CODEC is one of "
    + codec_names() + ", or again a choice in parentheses");
}

} // namespace

std::string_view to_string(tensor_role role) {
  constexpr std::string_view names[]{"unspecified", "activation", "parameter", "gradient",
                                     "optimizer",   "buffer",     "metric"};
  return names[static_cast<std::size_t>(role)];
}

codec_choice codec_choice::by_size(std::uint64_t threshold, codec_choice less,
                                   codec_choice greater_equal) {
  codec_choice out;
  out.by_ = by::size;
  out.threshold_ = threshold;
  out.choices_ = {std::move(less), std::move(greater_equal)};
  return out;
}

codec_choice codec_choice::by_role(std::map<tensor_role, codec_choice> roles,
                                   codec_choice otherwise) {
  codec_choice out;
  out.by_ = by::role;
  for (auto& [role, choice] : roles) {
    if (role == tensor_role::unspecified)
      continue; // these roles use `otherwise`
    out.names_.emplace_back(to_string(role));
    out.choices_.push_back(std::move(choice));
  }
  out.names_.emplace_back(otherwise_name);
  out.choices_.push_back(std::move(otherwise));
  return out;
}

codec_choice codec_choice::per_index(std::vector<codec_choice> choices) {
  codec_choice out;
  out.by_ = by::index;
  out.choices_ = std::move(choices);
  return out;
}

codec_choice codec_choice::per_key(std::vector<std::pair<std::string, codec_choice>> choices) {
  codec_choice out;
  out.by_ = by::key;
  std::ranges::stable_sort(choices, [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [name, choice] : choices) {
    out.names_.push_back(std::move(name));
    out.choices_.push_back(std::move(choice));
  }
  return out;
}

result<codec_id> codec_choice::choose(const tensor_info& tensor, std::size_t index) const {
  if (tensor.role == tensor_role::metric)
    return codec_id::none;
  // A rounded variance may be negative, and buffers are short.
  if (tensor.role == tensor_role::buffer && !names(tensor))
    return codec_id::none;
  return pick(tensor, index);
}

/// Whether this choice is explicit about the tensor, or about all tensors of its role.
bool codec_choice::names(const tensor_info& tensor) const {
  switch (by_) {
    case by::nothing:
      return false;
    case by::size:
      return choices_[tensor.elements < threshold_ ? 0 : 1].names(tensor);
    case by::role:
      return std::ranges::find(names_, to_string(tensor.role)) != names_.end();
    case by::index:
    case by::key:
      return true;
  }
  return false;
}

result<codec_id> codec_choice::pick(const tensor_info& tensor, std::size_t index) const {
  switch (by_) {
    case by::nothing:
      return codec_;
    case by::size:
      return choices_[tensor.elements < threshold_ ? 0 : 1].pick(tensor, index);
    case by::role: {
      auto at = std::find(names_.begin(), names_.end() - 1, to_string(tensor.role));
      return choices_[static_cast<std::size_t>(at - names_.begin())].pick(tensor, index);
    }
    case by::index:
      if (index >= choices_.size())
        return wrong("tensor " + std::to_string(index) + " ('" + tensor.key
                     + "') has no codec: the list ends after " + std::to_string(choices_.size()));
      return choices_[index].pick(tensor, index);
    case by::key: {
      auto at = std::ranges::lower_bound(names_, tensor.key);
      if (at == names_.end() || *at != tensor.key)
        return wrong("tensor '" + tensor.key + "' has no codec: the map does not name it");
      return choices_[static_cast<std::size_t>(at - names_.begin())].pick(tensor, index);
    }
  }
  return wrong("a choice by an unknown criterion");
}

std::string to_string(const codec_choice& choice) {
  using by = codec_choice::by;
  auto item = [](const codec_choice& inner) {
    return inner.by_ == by::nothing ? to_string(inner) : "(" + to_string(inner) + ")";
  };
  std::string out;
  switch (choice.by_) {
    case by::nothing:
      return std::string{to_string(choice.codec_)};
    case by::size:
      return "size:" + std::to_string(choice.threshold_) + "," + item(choice.choices_[0]) + ","
             + item(choice.choices_[1]);
    case by::role:
      out = "role:";
      break;
    case by::index:
      out = "list:";
      break;
    case by::key:
      out = "map:";
      break;
  }
  for (std::size_t i = 0; i < choice.choices_.size(); ++i) {
    if (i > 0)
      out += ",";
    if (!choice.names_.empty())
      out += escape(choice.names_[i]) + "=";
    out += item(choice.choices_[i]);
  }
  return out;
}

result<codec_choice> parse_codec_choice(std::string_view text) {
  return parse(text, 0);
}

result<codec_plan> plan_codecs(const codec_choice& choice, std::span<const tensor_info> tensors) {
  codec_plan plan;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    auto codec = choice.choose(tensors[i], i);
    if (!codec)
      return codec.error();
    if (tensors[i].elements == 0)
      continue;
    // An aggregator that measures distances treats each run by itself, and parameters, gradients,
    // buffers and metrics have different magnitudes.
    auto differ = [&](tensor_role role) {
      return i > 0 && (tensors[i].role == role) != (tensors[i - 1].role == role);
    };
    bool apart =
      differ(tensor_role::buffer) || differ(tensor_role::metric) || differ(tensor_role::gradient);
    if (!plan.empty() && plan.back().codec == *codec && !apart)
      plan.back().elements += tensors[i].elements;
    else
      plan.push_back({tensors[i].elements, *codec});
  }
  if (plan.size() > codec_runs_max)
    return wrong("the codec changes " + std::to_string(plan.size() - 1)
                 + " times along the vector; at most " + std::to_string(codec_runs_max)
                 + " stretches are possible: choose by fewer criteria");
  return plan;
}

} // namespace waggle
