// Reads the page again every ten seconds while the box is ticked and the page is looked at. Without it nothing is missing.
"use strict";
const box = document.getElementById("refresh");
const remembered = (value) => {
  try {
    return value === undefined ? sessionStorage.getItem("refresh") : sessionStorage.setItem("refresh", value);
  } catch {
    return null;
  }
};
const busy = () => document.hidden || ["INPUT", "SELECT"].includes(document.activeElement?.tagName) && document.activeElement !== box;
const again = async () => {
  if (!box.checked || busy()) return;
  try {
    const answer = await fetch(location.href, { cache: "no-store" });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (box.checked && !busy()) for (const part of ["main", "footer"]) document.querySelector(part).replaceWith(page.querySelector(part));
  } catch {
    // The controller is away for the moment: what was read last stays on the page, with its time.
  }
};
box.parentElement.hidden = false;
box.checked = remembered() === "yes";
box.addEventListener("change", () => { remembered(box.checked ? "yes" : "no"); again(); });
setInterval(again, 10_000);
