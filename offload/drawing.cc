#include "offload/drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "offload/critical_path.h"
#include "offload/numbers.h"
#include "offload/predecessors.h"

namespace headrace::offload {

namespace {

constexpr double width = 1600;     // of the time axis, in pixels
constexpr double left = 110;       // of it: the lanes' names
constexpr double row_height = 46;  // of a lane
constexpr double box_height = 30;
constexpr double axis_height = 28;

// The order of the rows: as bytes travel from the drive to the card and back.
constexpr std::array row_lanes = {LaneKind::nvme_read, LaneKind::cpu, LaneKind::h2d,
                                  LaneKind::gpu,       LaneKind::d2h, LaneKind::net,
                                  LaneKind::nvme_write};

// What a box is coloured by.
struct Sort {
    std::string_view name;
    std::string_view colour;
    bool operator==(const Sort&) const = default;
};

Sort sort_of(const Op& op) {
    switch (op.kind) {
        case OpKind::compute:
            if (op.pass == Pass::forward) return {"forward", "#4f81c7"};
            if (op.pass == Pass::backward) return {"backward", "#2c4f8a"};
            return {"head and loss", "#7a5ba6"};
        case OpKind::reduce: return {"reduce", "#9c8bc0"};
        case OpKind::update: return {"update", "#c75b4f"};
        case OpKind::verdict: return {"verdict", "#202020"};
        case OpKind::fetch:
        case OpKind::evict: break;
        case OpKind::sync:
        case OpKind::record:
        case OpKind::seal: return {"commit", "#8a8a3c"};
    }
    const Access* moved = &op.accesses.at(0);
    switch (moved->value.kind) {
        case Kind::hi: return {"weights", "#5aa469"};
        case Kind::opt: return {"states", "#d9a441"};
        case Kind::stash: return {"gradients", "#c98bb9"};
        case Kind::acc: return {"accumulators", "#a06a94"};
        default: return {"activations", "#58b0b8"};
    }
}

std::string escaped(std::string_view text) {
    std::string safe;
    for (const char c : text) {
        switch (c) {
            case '<': safe += "&lt;"; break;
            case '>': safe += "&gt;"; break;
            case '&': safe += "&amp;"; break;
            case '"': safe += "&quot;"; break;
            default: safe += c;
        }
    }
    return safe;
}

// A box: one op, or several neighbours that one pixel cannot hold.
struct Box {
    Sort sort;
    std::string text;
    int64_t start_ns = 0;
    int64_t end_ns = 0;
    size_t op_count = 1;
};

class Picture {
  public:
    Picture(const Schedule& schedule, const Timeline& timeline, const Drawing& drawing)
        : schedule_(schedule), drawing_(drawing) {
        CHECK_LT(drawing.begin_ns, drawing.end_ns);
        for (const Span& span : timeline.spans) {
            if (span.end_ns <= drawing.begin_ns || span.start_ns >= drawing.end_ns) continue;
            shown_.spans.push_back({span.ticket, std::max(span.start_ns, drawing.begin_ns),
                                    std::min(span.end_ns, drawing.end_ns)});
            lanes_[lane_of(schedule, span)].push_back(shown_.spans.back());
        }
        for (auto& lane : lanes_) std::ranges::sort(lane, {}, &Span::start_ns);
        for (const LaneKind lane : row_lanes) {
            if (lanes_[static_cast<size_t>(lane)].empty()) continue;
            row_of_[static_cast<size_t>(lane)] = static_cast<int>(rows_.size());
            rows_.push_back(lane);
        }
    }

    std::string svg() {
        std::string body = axis();
        for (const LaneKind lane : rows_) body += row(lane);
        body += path();
        return fmt::format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\">\n{}</svg>\n",
                           left + width + 10, axis_height + row_height * row_count(), body);
    }

    std::string legend() const {
        std::string text;
        for (const Sort& sort : sorts_) {
            text += fmt::format("<span><i style=\"background:{}\"></i>{}</span>\n", sort.colour,
                                sort.name);
        }
        return text;
    }

    std::string path_line() const {
        const auto seconds = path_seconds(schedule_, critical_path(schedule_, shown_));
        std::string text;
        for (const LaneKind lane : rows_) {
            const double lane_s = seconds[static_cast<size_t>(lane)];
            if (lane_s <= 0) continue;
            text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name_of(lane),
                                format_seconds(lane_s));
        }
        return "critical path: " + text;
    }

  private:
    double row_count() const { return static_cast<double>(rows_.size()); }
    double row_top(size_t lane) const { return axis_height + row_height * row_of_[lane]; }

    double x_of(int64_t time_ns) const {
        const auto whole = static_cast<double>(drawing_.end_ns - drawing_.begin_ns);
        return left + width * static_cast<double>(time_ns - drawing_.begin_ns) / whole;
    }

    // A line for every tenth of the step.
    std::string axis() const {
        std::string text;
        for (int i = 0; i <= 10; ++i) {
            const int64_t time_ns =
                drawing_.begin_ns + (drawing_.end_ns - drawing_.begin_ns) / 10 * i;
            text += fmt::format(
                "<line class=\"tick\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.0f}\" y2=\"{2:.0f}\"/>"
                "<text class=\"tick\" x=\"{0:.1f}\" y=\"16\">{3}</text>\n",
                x_of(time_ns), axis_height - 6, axis_height + row_height * row_count(),
                format_seconds(static_cast<double>(time_ns - drawing_.begin_ns) * 1e-9));
        }
        return text;
    }

    std::string row(LaneKind lane) {
        const auto index = static_cast<size_t>(lane);
        const double top = row_top(index) + (row_height - box_height) / 2;
        std::string text = fmt::format("<text class=\"lane\" x=\"0\" y=\"{:.1f}\">{}</text>\n",
                                       top + box_height * 0.65, name_of(lane));
        for (const Box& box : boxes(lanes_[index])) {
            const double x = x_of(box.start_ns);
            text += fmt::format(
                "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.0f}\" "
                "fill=\"{}\"><title>{}</title></rect>\n",
                x, top, std::max(x_of(box.end_ns) - x, 0.3), box_height, box.sort.colour,
                escaped(title_of(box)));
            if (std::ranges::find(sorts_, box.sort) == sorts_.end()) sorts_.push_back(box.sort);
        }
        return text;
    }

    static std::string title_of(const Box& box) {
        if (box.op_count == 1) return box.text;
        return fmt::format("{} and {} more", box.text, box.op_count - 1);
    }

    std::vector<Box> boxes(const std::vector<Span>& spans) const {
        std::vector<Box> boxes;
        for (const Span& span : spans) {
            const Op& op = schedule_.ops[span.ticket.op];
            const Sort sort = sort_of(op);
            if (!boxes.empty()) {
                Box& last = boxes.back();
                const int64_t end_ns = std::max(last.end_ns, span.end_ns);
                const bool is_narrow = x_of(end_ns) - x_of(last.start_ns) < 1.5;
                const bool is_near = x_of(span.start_ns) - x_of(last.end_ns) < 0.5;
                if (last.sort == sort && is_narrow && is_near) {
                    last.end_ns = end_ns;
                    ++last.op_count;
                    continue;
                }
            }
            boxes.push_back({sort,
                             fmt::format("{}, {}", describe(schedule_, op),
                                         format_seconds(1e-9 * static_cast<double>(span.end_ns -
                                                                                   span.start_ns))),
                             span.start_ns, span.end_ns});
        }
        return boxes;
    }

    // Through the middle of each op of the path, from row to row.
    std::string path() const {
        std::string points;
        double last_x = 0;
        double last_y = 0;
        const auto go_to = [&](double x, double y) {
            if (y == last_y && x - last_x < 1) return;
            points += fmt::format("{:.1f},{:.1f} ", x, y);
            last_x = x;
            last_y = y;
        };
        for (const Span& span : critical_path(schedule_, shown_)) {
            const double y = row_top(lane_of(schedule_, span)) + row_height / 2;
            go_to(x_of(span.start_ns), y);
            go_to(x_of(span.end_ns), y);
        }
        return fmt::format("<polyline class=\"path\" points=\"{}\"/>\n", points);
    }

    const Schedule& schedule_;
    const Drawing& drawing_;
    Timeline shown_;
    std::array<std::vector<Span>, lane_kind_count> lanes_;
    std::array<int, lane_kind_count> row_of_ = {};
    std::vector<LaneKind> rows_;
    std::vector<Sort> sorts_;  // seen, in the order of their first box
};

constexpr std::string_view style = R"(
body { font: 14px/1.5 system-ui, sans-serif; margin: 24px; color: #202020; background: #fff }
pre { font: 13px/1.5 ui-monospace, monospace; overflow-x: auto }
svg { width: 100%; height: auto }
svg text { font: 13px system-ui, sans-serif; fill: currentColor }
svg text.tick { font-size: 11px; text-anchor: middle }
line.tick { stroke: #8884 }
polyline.path { fill: none; stroke: #e0115f; stroke-width: 1.6; stroke-linejoin: round }
.legend span { margin-right: 16px; white-space: nowrap }
.legend i { display: inline-block; width: 12px; height: 12px; margin-right: 5px }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #181818 } })";

}  // namespace

std::string html_of(const Schedule& schedule, const Timeline& timeline, const Drawing& drawing) {
    Picture picture(schedule, timeline, drawing);
    const std::string svg = picture.svg();
    std::string lines;
    for (const std::string& line : drawing.lines) lines += escaped(line) + "\n";
    return fmt::format(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<title>{0}</title>\n<style>{1}\n</style>\n</head>\n<body>\n<h1>{0}</h1>\n<pre>{2}</pre>\n"
        "{3}<p class=\"legend\">{4}"
        "<span><i style=\"background:#e0115f\"></i>critical path</span></p>\n<p>{5}</p>\n"
        "</body>\n</html>\n",
        escaped(drawing.title), style, lines, svg, picture.legend(), picture.path_line());
}

}  // namespace headrace::offload
