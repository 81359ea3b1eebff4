#include "trainer/held_out_loss.hpp"

#include "runtime/training/checkpoint_store.hpp"
#include "runtime/training/evaluation.hpp"
#include "runtime/training/trained_model.hpp"
#include "trainer/compute_setup.hpp"
#include "trainer/training_model.hpp"

namespace waggle {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t windows_seed = 0x68656c646f7574; // any, but always the same

failure no_checkpoint(const fs::path& where, const std::string& why) {
  return {ec::bad_config, "--checkpoint " + where.string() + ": " + why};
}

result<std::string> image_at(const fs::path& where, const learner& model) {
  auto image_bytes = state_header_bytes + model.tensors().image_bytes();
  auto files = make_system_disk();
  std::error_code error;
  if (!fs::is_directory(where, error)) {
    auto image = files->read(where, image_bytes);
    if (!image)
      return no_checkpoint(where, to_string(image.error()));
    return std::move(*image);
  }
  auto folder = fs::is_directory(where / "checkpoints", error) ? where / "checkpoints" : where;
  auto found =
    checkpoint_store{files, folder}.load_newest(model.schema(), image_bytes, &model.tensors());
  if (!found)
    return no_checkpoint(where, to_string(found.error()));
  if (!found->newest)
    return no_checkpoint(where, found->skipped.empty() ? "there is no checkpoint"
                                                       : to_string(found->skipped.front()));
  return std::move(found->newest->image);
}

} // namespace

result<checkpoint_loss> loss_of_checkpoint(const learner_config& config,
                                           const learner_factory& make, const fs::path& where,
                                           std::uint64_t batches) {
  auto made = make();
  if (!made)
    return made.error();
  auto device = device_of(config.device);
  if (!device)
    return device.error();
  auto data = open_data(config);
  if (!data)
    return data.error();
  std::shared_ptr<learner> state{std::move(*made)};
  trained_model loaded{state};
  auto image = image_at(where, *state);
  if (!image)
    return image.error();
  if (auto fits = loaded.load(as_byte_span(*image)); !fits)
    return no_checkpoint(where, to_string(fits.error()));

  torch::NoGradGuard guard;
  const auto& shape = (*data)->shape();
  auto fresh = make_training_model(config, shape);
  if (!fresh)
    return fresh.error();
  auto& model = **fresh;
  load_weights(model, weights_of(*state));
  model.to(*device);
  model.train(false);
  window_sampler sampler{*data, window_of(shape, static_cast<std::size_t>(config.context)),
                         random_source{windows_seed}};
  double sum = 0;
  for (std::uint64_t i = 0; i < batches; ++i) {
    auto samples = next_batch(sampler, config.micro_batch, *device);
    if (!samples)
      return samples.error();
    sum += model.measure(*samples).loss;
  }
  checkpoint_loss out;
  out.epoch = loaded.epoch();
  out.windows = batches * static_cast<std::uint64_t>(config.micro_batch);
  out.loss = sum / static_cast<double>(batches);
  return out;
}

} // namespace waggle
