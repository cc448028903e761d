#include "engine/train/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

#include "offload/check.h"

namespace headrace::engine {

struct Sha256::State {
    struct Free {
        void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
    };
    std::unique_ptr<EVP_MD_CTX, Free> context{EVP_MD_CTX_new()};
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
    CHECK(state_->context != nullptr);
    CHECK_EQ(EVP_DigestInit_ex(state_->context.get(), EVP_sha256(), nullptr), 1);
}

Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::add(std::span<const std::byte> bytes) {
    CHECK_EQ(EVP_DigestUpdate(state_->context.get(), bytes.data(), bytes.size()), 1);
}

std::string Sha256::finish() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest = {};
    unsigned int size_bytes = 0;
    CHECK_EQ(EVP_DigestFinal_ex(state_->context.get(), digest.data(), &size_bytes), 1);
    CHECK_EQ(size_bytes, 32u);
    std::string hex;
    for (unsigned int i = 0; i < size_bytes; ++i) hex += fmt::format("{:02x}", digest[i]);
    return hex;
}

}  // namespace headrace::engine
