// Finding the name that somebody meant.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace headrace::engine {

// Letters to insert, remove, replace, or swap with their neighbour, to turn `left` into `right`;
// '-' equals '_', and case does not count.
int edit_distance(std::string_view left, std::string_view right);

// The candidate nearest to `name`, or empty where none is within a third of its length.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates);

}  // namespace headrace::engine
