// The options of the model, and of the data that it learns from and is evaluated on.

#include <sstream>

#include "runtime/agreement/data_files.hpp"
#include "runtime/config/option_bindings.hpp"
#include "runtime/core/try.hpp"
#include "runtime/data/data_set.hpp"
#include "runtime/training/model_table.hpp"
#include "runtime/training/safetensors.hpp"

namespace waggle {

bool is_torchscript(std::string_view model) {
  return model.ends_with(".pt");
}

data_request request_of(const learner_options& o, data_role role) {
  return {role == data_role::training ? o.data : o.eval_data, role,
          static_cast<std::size_t>(o.context), o.token_bytes, o.classes};
}

namespace option_bindings {

namespace {

using o = run_options;

/// Peers compare the files' names and sizes, not their paths.
std::string data_of(const run_options& x) {
  return data_set_identity(request_of(x, data_role::training));
}

/// A file or folder, or several with commas between, and patterns.
template <class Place>
binding data_paths(Place place) {
  return bound(place, [](std::string_view v) -> result<std::string> {
    if (v.empty())
      return failure{ec::bad_config, "must not be empty"};
    if (v == "synthetic")
      return std::string{v};
    std::error_code error;
    bool one = std::filesystem::exists(v, error);
    std::string out, part;
    for (std::istringstream in{std::string{v}}; std::getline(in, part, one ? '\0' : ',');) {
      WAGGLE_TRY(path, absolute_path(part));
      if (!one && path->string().find(',') != std::string::npos)
        return failure{ec::bad_config, "is relative to a folder with a comma in its path, which "
                                       "separates files: start in another one"};
      out += (out.empty() ? "" : ",") + path->string();
    }
    return out;
  });
}

/// Peers compare what is in a file, wherever it is.
binding model() {
  return bound(&o::model,
               [](std::string_view v) -> result<std::string> {
                 auto names = names_in(model_table());
                 if (std::find(names.begin(), names.end(), v) != names.end())
                   return std::string{v};
                 if (is_torchscript(v) || is_safetensors(v)) {
                   auto file = absolute_path(v);
                   return file ? result<std::string>{file->string()} : file.error();
                 }
                 return failure{ec::bad_config, "is not one of " + joined(names, ", ")
                                                  + ", nor a TorchScript file (FILE.pt); the "
                                                    "nearest is "
                                                  + nearest(v, names)};
               })
    .agreed([](const run_options& x) {
      return is_torchscript(x.model) ? content_identity(x.model) : x.model;
    });
}

} // namespace

void add_data_options(std::vector<option_spec>& table) {
  add_group(
    table, "training",
    {{"model", "NAME",
      listed(model_table())
        + "; or FILE.pt, a TorchScript module. waggle plan also counts "
          "the values in FILE.safetensors.",
      model().member_in_loops("model")},
     {"loss", "NAME",
      "Of a TorchScript module without an exported method loss(inputs, targets): cross-entropy or "
      "mse of what its forward returns.",
      one_of(&o::loss, {"cross-entropy", "mse"}).agreed()},
     {"data", "PATH",
      "Text files, lines of JSON (.jsonl: texts, or objects with a field 'text') or tokens (.bin): "
      "files, folders of files and patterns, with commas between; a folder of images with MNIST's "
      "names (IDX, .gz or not) or CIFAR-10's; or 'synthetic', a text.",
      data_paths(&o::data).agreed(data_of).member_in_loops("data")},
     {"token-type", "TYPE", "Of tokens, little-endian: uint16 or uint32.",
      choice(&o::token_bytes, {{"uint16", 2}, {"uint32", 4}}).agreed()},
     {"classes", "N",
      "What a model predicts has so many values; 0: 256 bytes of text, 10 labels of images. Tokens "
      "need the size of their vocabulary.",
      whole(&o::classes, 0, 1U << 24U, "").agreed()},
     {"eval-data", "PATH",
      "Measure loss and accuracy of the shared weights on this, beside training. Of a folder of "
      "images, its test half (t10k-…, test_batch.bin) is read.",
      data_paths(&o::eval_data)},
     {"eval-every", "TIME",
      "Minimum time between two evaluations, each of which is of the weights at the end of an "
      "epoch.",
      duration(&o::eval_every)}});
}

} // namespace option_bindings

} // namespace waggle
