// The operator's token, kept until the browser's tab is closed.

const name = 'redykv token';

export const keepToken = token => sessionStorage.setItem(name, token);

export function headers() {
  const token = sessionStorage.getItem(name);
  return token ? {Authorization: 'Bearer ' + token} : {};
}
