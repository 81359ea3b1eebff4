#include "runtime/training/begun_from.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/core/float_vector.hpp"
#include "runtime/core/named.hpp"
#include "runtime/core/try.hpp"
#include "runtime/training/checkpoint_store.hpp"
#include "runtime/training/learner.hpp"
#include "runtime/training/safetensors.hpp"

namespace waggle {

namespace {

using kind = state_tensor::kind;

status load(learner& model, byte_span image) {
  WAGGLE_TRY(from, weights_in(image));
  const auto& ours = model.tensors();
  for (auto what : {kind::parameter, kind::buffer, kind::counter})
    if (from->table.tensors_of({what}) != ours.tensors_of({what}))
      return failure{ec::bad_config, how_tables_differ(from->table, ours)};
  float_vector values;
  for (auto i : ours.indices_of({kind::parameter, kind::buffer, kind::counter})) {
    const auto& bytes = find_named(from->tensors, ours[i].name)->values;
    values.resize(static_cast<std::size_t>(ours[i].elements()));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    model.write_tensor(i, values);
  }
  model.set_optimizer_steps(0);
  return done{};
}

} // namespace

learner_factory begun_from(learner_factory make, const std::string& file,
                           std::shared_ptr<disk> files) {
  if (file.empty())
    return make;
  return
    [make = std::move(make), file, files = std::move(files)]() -> result<std::unique_ptr<learner>> {
      WAGGLE_TRY(made, make());
      auto bad = [&](const failure& why) {
        return failure{ec::bad_config, "--from " + file + ": " + why.detail};
      };
      auto image = files->read(file, checkpoint_store::image_bytes_max);
      if (!image)
        return bad(image.error());
      if (auto loaded = load(**made, as_byte_span(*image)); !loaded)
        return bad(loaded.error());
      return made;
    };
}

} // namespace waggle
