/* Sign-in: the secret stands behind the #, which no server ever sees; it is sent in a form. */
import { $, page } from "./dom.js";

function redeem() {
  if (page !== "signin" || location.hash.length <= 20) return;
  const form = $("#link-form");
  const secret = decodeURIComponent(location.hash.slice(1));
  history.replaceState(null, "", location.pathname); // used or not, it stays in no address
  if (!form) return;
  $("#secret").value = secret;
  form.requestSubmit();
}
redeem();
addEventListener("hashchange", redeem); // the link was opened where this page stood already
