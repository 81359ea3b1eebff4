#pragma once

// The two visitors of a message's fields (message_fields.hpp): `writer` copies a struct to its
// protobuf message, `reader` the message to a struct, checked. Fields are found by their names in
// waggle_wire.proto; a name that is not there is a bug and ends the process.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "runtime/core/check.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/core/time.hpp"

namespace waggle::wire {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

/// Selects the overload of `fields` that describes a T.
template <class T>
struct of {};

/// The bounds of a number, of a text's bytes, or of how many entries a list has.
struct range {
  std::uint64_t least = 0;
  std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
};

/// Finds the fields of a message, most quickly in the order of waggle_wire.proto.
class field_finder {
public:
  explicit field_finder(const Message& message) : all_(*message.GetDescriptor()) {}

  const FieldDescriptor* operator()(const char* name) {
    const auto* field = next_ < all_.field_count() ? all_.field(next_) : nullptr;
    if (field == nullptr || field->name() != name)
      field = all_.FindFieldByName(name);
    WAGGLE_CHECK(field != nullptr, name);
    next_ = field->index() + 1;
    return field;
  }

private:
  const google::protobuf::Descriptor& all_;
  int next_ = 0;
};

/// Whether anything out of bounds within a T is a violation, also a text or a list that is too
/// long.
template <class T>
constexpr bool is_one_field = true;

template <class T>
concept whole_number = std::is_integral_v<T> || std::is_enum_v<T> || std::is_same_v<T, epoch_id>;

// -- writing -------------------------------------------------------------------------------------

class writer {
public:
  static constexpr bool reads = false;

  explicit writer(Message& to) : to_(to), by_(*to.GetReflection()), field_(to) {}

  template <class T>
  void operator()(const char* name, const T& x, range = {}, ec = ec::none) {
    put(field_(name), x);
  }
  /// Whether the field is there: if `given`.
  static bool has(const char*, bool given) { return given; }
  void require(const char*, bool) {}

private:
  void put_number(const FieldDescriptor* field, std::uint64_t x) {
    auto type = field->cpp_type();
    bool list = field->is_repeated();
    if (type == FieldDescriptor::CPPTYPE_UINT32 && list)
      by_.AddUInt32(&to_, field, static_cast<std::uint32_t>(x));
    else if (type == FieldDescriptor::CPPTYPE_UINT32)
      by_.SetUInt32(&to_, field, static_cast<std::uint32_t>(x));
    else if (type == FieldDescriptor::CPPTYPE_UINT64 && list)
      by_.AddUInt64(&to_, field, x);
    else if (type == FieldDescriptor::CPPTYPE_UINT64)
      by_.SetUInt64(&to_, field, x);
    else
      by_.SetBool(&to_, field, x != 0);
  }
  void put(const FieldDescriptor* field, double x) {
    field->is_repeated() ? by_.AddDouble(&to_, field, x) : by_.SetDouble(&to_, field, x);
  }
  void put(const FieldDescriptor* field, const std::string& x) {
    field->is_repeated() ? by_.AddString(&to_, field, x) : by_.SetString(&to_, field, x);
  }
  void put(const FieldDescriptor* field, swarm_time x) {
    by_.SetInt64(&to_, field, to_nanoseconds(x));
  }
  template <class Tag, std::size_t Size>
  void put(const FieldDescriptor* field, const byte_id<Tag, Size>& x) {
    put(field, std::string{x.raw()});
  }
  template <class T>
  void put(const FieldDescriptor* field, const std::optional<T>& x) {
    if (x)
      put(field, *x);
  }
  /// A field that is no list has at most one entry, or all ids, one after another.
  template <class T>
  void put(const FieldDescriptor* field, const std::vector<T>& list) {
    if constexpr (requires(T id) { id.raw(); })
      if (!field->is_repeated()) {
        std::string all;
        for (const auto& id : list)
          all += id.raw();
        return put(field, all);
      }
    for (const auto& x : list)
      put(field, x);
  }
  template <class T>
  void put(const FieldDescriptor* field, const T& x) {
    if constexpr (whole_number<T>) {
      put_number(field, static_cast<std::uint64_t>(x));
    } else {
      writer inner{field->is_repeated() ? *by_.AddMessage(&to_, field)
                                        : *by_.MutableMessage(&to_, field)};
      fields(of<T>{}, inner, x);
    }
  }

  Message& to_;
  const google::protobuf::Reflection& by_;
  field_finder field_;
};

template <class T>
void write(const T& x, Message& to) {
  writer io{to};
  fields(of<T>{}, io, x);
}

// -- reading -------------------------------------------------------------------------------------

/// Stops at the first field that is out of bounds. What it allocates is bounded by the message.
class reader {
public:
  static constexpr bool reads = true;

  explicit reader(const Message& from) : from_(from), by_(*from.GetReflection()), field_(from) {}

  /// ec::none if all fields so far were within their bounds; else the first one that was not.
  [[nodiscard]] ec why() const { return why_; }
  [[nodiscard]] const char* where() const { return where_; }

  /// Fails with ec::oversize for longer texts and lists, ec::non_finite, or, for anything else that
  /// is not within bounds, ec::protocol_violation. Floating-point values must not be negative.
  /// @param bad_real the error for all floating-point values that are not valid.
  template <class T>
  void operator()(const char* name, T& out, range within = {}, ec bad_real = ec::none) {
    if (why_ != ec::none)
      return;
    bad_real_ = bad_real;
    note(name, get({field_(name), -1}, out, within));
  }
  /// Whether the field, a text or an id, is not empty.
  [[nodiscard]] bool has(const char* name, bool) {
    std::string none;
    return !by_.GetStringReference(from_, field_(name), &none).empty();
  }
  void require(const char* name, bool valid) {
    if (why_ == ec::none)
      note(name, valid ? ec::none : ec::protocol_violation);
  }

private:
  /// A field, or one entry of it if it is a list.
  struct place {
    const FieldDescriptor* field;
    int entry; // -1: the field itself
  };

  void note(const char* name, ec why) {
    why_ = why;
    if (why != ec::none)
      where_ = name;
  }

  [[nodiscard]] std::uint64_t number(place at) const {
    auto type = at.field->cpp_type();
    bool list = at.entry >= 0;
    if (type == FieldDescriptor::CPPTYPE_UINT32)
      return list ? by_.GetRepeatedUInt32(from_, at.field, at.entry)
                  : by_.GetUInt32(from_, at.field);
    if (type == FieldDescriptor::CPPTYPE_UINT64)
      return list ? by_.GetRepeatedUInt64(from_, at.field, at.entry)
                  : by_.GetUInt64(from_, at.field);
    return by_.GetBool(from_, at.field) ? 1 : 0;
  }
  [[nodiscard]] const std::string& text(place at, std::string& scratch) const {
    return at.entry >= 0 ? by_.GetRepeatedStringReference(from_, at.field, at.entry, &scratch)
                         : by_.GetStringReference(from_, at.field, &scratch);
  }

  ec get(place at, double& out, range) {
    out = at.entry >= 0 ? by_.GetRepeatedDouble(from_, at.field, at.entry)
                        : by_.GetDouble(from_, at.field);
    if (std::isfinite(out) && out >= 0)
      return ec::none;
    if (bad_real_ != ec::none)
      return bad_real_;
    return std::isfinite(out) ? ec::protocol_violation : ec::non_finite;
  }
  ec get(place at, std::string& out, range within) {
    std::string scratch;
    const auto& found = text(at, scratch);
    if (found.size() > within.most)
      return ec::oversize;
    out = found;
    return out.size() < within.least ? ec::protocol_violation : ec::none;
  }
  ec get(place at, swarm_time& out, range) {
    out = swarm_time_from(by_.GetInt64(from_, at.field));
    return ec::none;
  }
  ec get(place at, ec& out, range) {
    out = ec_from_wire(static_cast<std::uint32_t>(number(at)));
    return ec::none;
  }
  template <class Tag, std::size_t Size>
  ec get(place at, byte_id<Tag, Size>& out, range) {
    std::string scratch;
    auto id = byte_id<Tag, Size>::from_raw(text(at, scratch));
    out = id.value_or(out);
    return id ? ec::none : ec::protocol_violation;
  }
  template <class T>
  ec get(place at, std::optional<T>& out, range within) {
    return by_.HasField(from_, at.field) ? get(at, out.emplace(), within) : ec::none;
  }
  template <class T>
  ec get(place at, std::vector<T>& out, range within) {
    if constexpr (requires(T id) { id.raw(); })
      if (!at.field->is_repeated())
        return get_joined(at, out, within);
    bool list = at.field->is_repeated();
    auto size = list ? by_.FieldSize(from_, at.field) : by_.HasField(from_, at.field) ? 1 : 0;
    if (auto n = static_cast<std::size_t>(size); n < within.least || n > within.most)
      return n > within.most ? ec::oversize : ec::protocol_violation;
    out.clear();
    for (int i = 0; i < size; ++i) {
      T x{};
      if (auto why = get({at.field, list ? i : -1}, x, {}); why != ec::none)
        return why;
      out.push_back(std::move(x));
    }
    return ec::none;
  }
  template <class Id>
  ec get_joined(place at, std::vector<Id>& out, range within) {
    std::string scratch;
    std::string_view rest = text(at, scratch);
    auto size = rest.size() / Id::size;
    if (rest.size() > within.most * Id::size)
      return ec::oversize;
    if (size < within.least || rest.size() % Id::size != 0)
      return ec::protocol_violation;
    for (out.clear(); !rest.empty(); rest.remove_prefix(Id::size))
      out.push_back(*Id::from_raw(rest.substr(0, Id::size)));
    return ec::none;
  }
  template <class T>
  ec get(place at, T& out, range within) {
    if constexpr (whole_number<T>) {
      auto x = number(at);
      out = static_cast<T>(x);
      bool same = static_cast<std::uint64_t>(out) == x || std::is_same_v<T, bool>;
      return same && x >= within.least && x <= within.most ? ec::none : ec::protocol_violation;
    } else {
      reader inner{at.entry >= 0 ? by_.GetRepeatedMessage(from_, at.field, at.entry)
                                 : by_.GetMessage(from_, at.field)};
      fields(of<T>{}, inner, out);
      return inner.why_ != ec::none && is_one_field<T> ? ec::protocol_violation : inner.why_;
    }
  }

  const Message& from_;
  const google::protobuf::Reflection& by_;
  field_finder field_;
  ec why_ = ec::none;
  ec bad_real_ = ec::none;
  const char* where_ = "";
};

} // namespace waggle::wire
